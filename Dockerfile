# syntax=docker/dockerfile:1

# The manager's image: one static binary on distroless, run as a user that is not root.
#   docker build -t spot-training-operator:dev .
#   make docker-buildx IMG=...            (linux/amd64 and linux/arm64)

ARG GO_VERSION=1.26
ARG BASE_IMAGE=gcr.io/distroless/static:nonroot

# The compiler runs on the building machine's own architecture and cross-compiles.
FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS builder
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
WORKDIR /src

COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download

COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=${TARGETOS:-linux} GOARCH=${TARGETARCH} \
    go build -trimpath -tags disable_grpc_modules,grpcnotrace -ldflags "-s -w -X main.version=${VERSION}" -o /out/manager .

FROM ${BASE_IMAGE}
ARG VERSION=dev
LABEL org.opencontainers.image.title="spot-training-operator" \
      org.opencontainers.image.description="Runs machine-learning training on Kubernetes and survives spot preemption" \
      org.opencontainers.image.source="https://github.com/dcnlab/spot-training-operator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# In the PATH, as in the image of a release, which ko builds.
COPY --from=builder /out/manager /usr/local/bin/spot-training-operator
USER 65532:65532
# The subcommand (manager, checkpoint-agent, node-agent, job-service) is the container's first argument.
ENTRYPOINT ["/usr/local/bin/spot-training-operator"]
CMD ["manager"]
