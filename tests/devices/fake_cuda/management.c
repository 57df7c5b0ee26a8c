/* The functions of libnvidia-ml.so.1 that torch's allocator looks up. There is no link between the devices. */

#include <stdlib.h>

#define ANSWER(name) \
    int name(void) { return 0; }
#define UNSUPPORTED(name) \
    int name(void) { return 3; }

ANSWER(nvmlInit_v2)
ANSWER(nvmlInit)
ANSWER(nvmlDeviceGetHandleByPciBusId_v2)
UNSUPPORTED(nvmlDeviceGetNvLinkRemoteDeviceType)
UNSUPPORTED(nvmlDeviceGetNvLinkRemotePciInfo_v2)
UNSUPPORTED(nvmlSystemGetCudaDriverVersion_v2)

int nvmlDeviceGetCount_v2(unsigned *count) {
    const char *text = getenv("FAKE_CUDA_DEVICES");
    *count = text ? (unsigned)atoi(text) : 1;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *processes) {
    (void)device, (void)processes;
    *count = 0;
    return 0;
}
