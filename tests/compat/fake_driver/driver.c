/* A driver that prints what it is asked to do, a line for each call. Arguments of a launch end with NULL, which the
   real driver does not need: each is printed as the four bytes that it points to, a descriptor by its first word. */
#include <cuda.h>
#include <stdio.h>

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  const unsigned char *bytes = image;
  printf("load %02x%02x%02x%02x\n", bytes[0], bytes[1], bytes[2], bytes[3]);
  *module = (CUmodule)(uintptr_t)image;
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  printf("unload\n");
  return module != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  printf("function %s\n", name);
  *function = (CUfunction)module;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  printf("attribute %d %d\n", attribute, value);
  return function != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxGetDevice(CUdevice *device) {
  *device = 3;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT && device == 3 ? 132 : -1;
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill padding) {
  static unsigned made = 0;
  printf("map type=%d at=%llu sizes=", type, (unsigned long long)(uintptr_t)address);
  for (cuuint32_t i = 0; i < rank; i++) printf("%llu,", (unsigned long long)sizes[i]);
  printf(" strides=");
  for (cuuint32_t i = 0; i + 1 < rank; i++) printf("%llu,", (unsigned long long)strides[i]);
  printf(" box=");
  for (cuuint32_t i = 0; i < rank; i++) printf("%u/%u,", box[i], steps[i]);
  printf(" modes=%d,%d,%d,%d\n", interleave, swizzle, promotion, padding);
  map->opaque[0] = 7000 + made++;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned block_y,
                        unsigned block_z, unsigned shared, CUstream stream, void **arguments, void **extra) {
  if (function == NULL || block_y != 1 || block_z != 1 || extra != NULL) return CUDA_ERROR_INVALID_VALUE;
  printf("launch %u %u %u threads=%u shared=%u stream=%llu arguments=", x, y, z, threads, shared,
         (unsigned long long)(uintptr_t)stream);
  for (; *arguments != NULL; arguments++) printf("%d,", *(const int *)*arguments);
  printf("\n");
  return CUDA_SUCCESS;
}
