// SPDX-License-Identifier: MIT
// Which file systems are network ones, where SQLite's locks cannot be trusted.
#include <algorithm>
#include <iterator>

#include "store/store.h"

namespace flextrain::store {

bool is_network_file_system(int64_t statfs_magic) {
  // f_type values of statfs(2) and linux/magic.h; the last ones from the file systems' own sources.
  static constexpr uint32_t kNetwork[] = {
      0x6969,      // NFS
      0x517B,      // SMB
      0xFF534D42,  // CIFS
      0xFE534D42,  // SMB2
      0x65735546,  // FUSE: GlusterFS, sshfs and others; may be remote
      0x00C36400,  // CephFS
      0x01021997,  // 9P
      0x5346414F,  // AFS
      0x6B414653,  // kAFS
      0x73757245,  // Coda
      0x564C,      // NCP
      0x7461636F,  // OCFS2
      0x01161970,  // GFS2
      0x0BD00BD0,  // Lustre
      0x47504653,  // GPFS
      0x19830326,  // BeeGFS
      0xAAD7AAEA,  // PanFS
      0x786F4256,  // VirtualBox shared folder
  };
  // f_type is signed on some architectures: compare its low 32 bits.
  const auto magic = static_cast<uint32_t>(statfs_magic);
  return std::find(std::begin(kNetwork), std::end(kNetwork), magic) != std::end(kNetwork);
}

}  // namespace flextrain::store
