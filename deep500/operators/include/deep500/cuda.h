// What the generated wrapper of an operator in CUDA adds to abi.h.
#pragma once

#include <cuda_runtime.h>

#include "deep500/abi.h"

namespace d500_detail {

D500_MEMBER(forward_cuda, D500_FORWARD_CUDA)
D500_MEMBER(backward_cuda, D500_BACKWARD_CUDA)

inline void succeed(cudaError_t status, const char *what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

/// Run a function that returns a status, or nothing, and that starts kernels.
template <class F>
int launched(F &&run) {
  int status = 0;
  if constexpr (std::is_void<decltype(run())>::value)
    run();
  else
    status = static_cast<int>(run());
  succeed(cudaGetLastError(), "a kernel could not be started");
  return status;
}

/// Copies of host arrays on the device; given back at the end of the scope.
class device_arrays {
 public:
  device_arrays() = default;
  device_arrays(const device_arrays &) = delete;
  ~device_arrays() {
    for (void *pointer : all) cudaFree(pointer);
  }

  /// Room for this number of bytes, filled from the host unless that is null.
  void *add(std::size_t bytes, const void *host) {
    void *made = nullptr;
    succeed(cudaMalloc(&made, bytes ? bytes : 1), "cudaMalloc");
    all.push_back(made);
    if (host && bytes) succeed(cudaMemcpy(made, host, bytes, cudaMemcpyHostToDevice), "copying to the device");
    return made;
  }

  /// Copy an array back, unless the host does not want it. Waits for the kernels before.
  static void fetch(void *host, const void *device, std::size_t bytes) {
    if (host && bytes) succeed(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "running, or copying from the device");
  }

 private:
  std::vector<void *> all;
};

}  // namespace d500_detail
