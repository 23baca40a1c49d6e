# The catalog's image: opm, the catalog and the cache that opm makes of it, so that it starts fast.
#   make catalog-build CATALOG_IMG=<registry>/spot-training-operator-catalog:latest
ARG OPM_IMAGE=quay.io/operator-framework/opm:v1.61.0

FROM ${OPM_IMAGE} AS builder
ADD catalog/spot-training-operator /configs/spot-training-operator
RUN ["/bin/opm", "serve", "/configs", "--cache-dir=/tmp/cache", "--cache-only"]

FROM ${OPM_IMAGE}
LABEL operators.operatorframework.io.index.configs.v1=/configs
COPY --from=builder /configs /configs
COPY --from=builder /tmp/cache /tmp/cache
ENTRYPOINT ["/bin/opm"]
CMD ["serve", "/configs", "--cache-dir=/tmp/cache"]
