"""The v2 inference protocol of KServe and Triton, over HTTP and gRPC."""
