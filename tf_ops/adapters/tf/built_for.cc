// Which TensorFlow this library was built for, as bytes in the file: importing it under
// another fails with an undefined symbol before any code of ours runs, so Python reads
// the file first (python/horovod/tensorflow/_ops.py).

extern "C" __attribute__((used, visibility("default"))) const char hvd_tf_built_for[] =
    "horovod built for tensorflow " HVD_TF_VERSION;
