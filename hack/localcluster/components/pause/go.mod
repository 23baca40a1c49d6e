// The program of the container that holds a pod's namespaces.
module github.com/dcnlab/spot-training-operator/hack/localcluster/components/pause

go 1.26.0
