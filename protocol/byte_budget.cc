// SPDX-License-Identifier: MIT
#include "protocol/byte_budget.h"

namespace flextrain::protocol {

bool ByteBudget::add(Share& share, const std::string& address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  return set_locked(share, address, share.bytes_ + bytes);
}

bool ByteBudget::set(Share& share, const std::string& address, size_t bytes) {
  const std::lock_guard lock(mutex_);
  return set_locked(share, address, bytes);
}

bool ByteBudget::set_locked(Share& share, const std::string& address, size_t bytes) {
  const size_t charge = bytes > kFreeBytes ? bytes - kFreeBytes : 0;
  if (charge > share.charged_) {
    const size_t more = charge - share.charged_;
    const auto own = by_address_.find(address);
    const size_t held = own == by_address_.end() ? 0 : own->second;
    if (more > pool_ - used_ || more > pool_ / 4 || held > pool_ / 4 - more) return false;
    by_address_[address] += more;
    used_ += more;
    share.budget_ = this;
    share.address_ = address;
  } else {
    give_back_locked(share, share.charged_ - charge);
  }
  share.charged_ = charge;
  share.bytes_ = bytes;
  return true;
}

void ByteBudget::give_back_locked(Share& share, size_t bytes) {
  if (bytes == 0) return;
  used_ -= bytes;
  const auto own = by_address_.find(share.address_);
  if ((own->second -= bytes) == 0) by_address_.erase(own);
}

void ByteBudget::Share::release() {
  if (budget_ == nullptr) return;
  const std::lock_guard lock(budget_->mutex_);
  budget_->give_back_locked(*this, charged_);
  charged_ = 0;
  bytes_ = 0;
}

size_t ByteBudget::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

}  // namespace flextrain::protocol
