// Training scripts of others, which the end-to-end tests run as they are. A module of its own keeps them out of the product's.
module github.com/dcnlab/spot-training-operator/hack/training-examples

go 1.26.0

require github.com/kubeflow/training-operator v1.9.4
