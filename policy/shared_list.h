// SPDX-License-Identifier: MIT
// A list that many owners share without a copy: 200 jobs with the same needs name the same 1,000
// nodes. A value type; what is shared is never changed (push_back copies what others hold).
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace flextrain::policy {

template <typename T>
class SharedList {
 public:
  SharedList() = default;
  SharedList(std::vector<T> items)  // NOLINT: a list is one
      : items_(std::make_shared<std::vector<T>>(std::move(items))) {}
  SharedList(std::initializer_list<T> items) : SharedList(std::vector<T>(items)) {}

  auto begin() const { return items().begin(); }
  auto end() const { return items().end(); }
  size_t size() const { return items().size(); }
  bool empty() const { return items().empty(); }
  const T& operator[](size_t at) const { return items()[at]; }
  const std::vector<T>& items() const {
    static const std::vector<T> kNone;
    return items_ == nullptr ? kNone : *items_;
  }
  void push_back(T item) {
    if (items_ == nullptr || items_.use_count() > 1)
      items_ = std::make_shared<std::vector<T>>(items());
    items_->push_back(std::move(item));
  }
  void clear() { items_.reset(); }

  // Equal only for lists that are shared: what was made of one holds for the other.
  const void* identity() const { return items_.get(); }

 private:
  std::shared_ptr<std::vector<T>> items_;
};

}  // namespace flextrain::policy
