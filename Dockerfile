# syntax=docker/dockerfile:1@sha256:ecfaec9ed6d810b56388c508f4121597bfbba70d41a6dfeee4d8cad5f295fc32

# The manager's image: one static binary on distroless, run as a user that is not root.
#   docker build -t spot-training-operator:dev .
#   make docker-buildx IMG=...            (linux/amd64 and linux/arm64)

# The compiler runs on the building machine's own architecture and cross-compiles.
FROM --platform=$BUILDPLATFORM golang:1.26.8-trixie@sha256:771f3162219f7a66bb6be3fea1ba31f418932946a99ad9eac26ffd555dfcf393 AS builder
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

FROM gcr.io/distroless/static:nonroot@sha256:1c2c046bc09ed40fad370b599a0b1ae7987f55b01e247cf27a7c27cd97e5bbc7
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
