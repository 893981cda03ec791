// SPDX-License-Identifier: MIT
// sacct's way of writing times. Local time zone; pure but for that.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace flextrain::cli {

// HH:MM[:SS] [AM|PM] · YYYY-MM-DD[THH:MM[:SS]] · MM/DD[/YY][-HH:MM[:SS]] · MMDD[YY] · now, today,
// midnight, noon, fika (15:00), teatime (16:00), tomorrow · now±COUNT[seconds|minutes|hours|days|
// weeks] · ±COUNT[unit] · unix seconds of nine digits or more. A time of day alone that is still to
// come means yesterday's, as sacct looks back. kInvalidArgument names what is not understood.
Result<int64_t> parse_time(std::string_view text, int64_t now);

int64_t midnight_before(int64_t now);

// "2026-11-29T18:20:05", local; "Unknown" for 0, as sacct prints it.
std::string format_time(int64_t time);
// Slurm's elapsed time: [DD-]HH:MM:SS.
std::string format_duration(double seconds);

}  // namespace flextrain::cli
