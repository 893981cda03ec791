// SPDX-License-Identifier: MIT
#include "protocol/byte_budget.h"

namespace flextrain::protocol {

bool ByteBudget::add(Share& share, const std::string& address, size_t bytes) {
  const size_t whole = share.bytes_ + bytes;
  const size_t charge = whole > kFreeBytes ? whole - kFreeBytes - share.charged_ : 0;
  if (charge > 0) {
    const std::lock_guard lock(mutex_);
    const auto own = by_address_.find(address);
    const size_t held = own == by_address_.end() ? 0 : own->second;
    if (charge > pool_ - used_ || charge > pool_ / 4 || held > pool_ / 4 - charge) return false;
    by_address_[address] += charge;
    used_ += charge;
    share.budget_ = this;
    share.address_ = address;
    share.charged_ += charge;
  }
  share.bytes_ = whole;
  return true;
}

void ByteBudget::Share::release() {
  if (budget_ == nullptr) return;
  const std::lock_guard lock(budget_->mutex_);
  if (charged_ == 0) return;
  budget_->used_ -= charged_;
  const auto own = budget_->by_address_.find(address_);
  if ((own->second -= charged_) == 0) budget_->by_address_.erase(own);
  charged_ = 0;
}

size_t ByteBudget::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

}  // namespace flextrain::protocol
