// SPDX-License-Identifier: MIT
#include "trainer/run/exit_code.h"

namespace flextrain::trainer {

int exit_code_for(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kAlreadyExists:
    case StatusCode::kPermissionDenied:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kDataLoss:
      return kExitUnusable;
    default:
      return kExitFailed;
  }
}

}  // namespace flextrain::trainer
