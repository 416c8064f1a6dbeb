"""The Open Inference Protocol v2 of KServe and Triton, over HTTP and gRPC."""
