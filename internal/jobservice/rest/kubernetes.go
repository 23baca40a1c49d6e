package rest

import (
	"context"
	"strings"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// Kubernetes is what the service asks of the cluster that it runs in. Errors: jobs.ErrNotFound where that is said, and
// jobs.ErrUnavailable (wrapped) when the API server does not answer; any other error is an internal one.
type Kubernetes interface {
	// Logs of the pods of a job of the executor Kubernetes. With Follow they end when the job has ended. A job whose pods have not
	// started yet has no lines; following waits for them. With Timestamps every line begins with its time in RFC 3339 and a blank. The
	// lines of a gang's pods begin with the pod's index in brackets.
	Logs(ctx context.Context, job jobs.Job, options LogOptions) (Lines, error)
	// Clusters are all ComputeClusters, by name; without their nodes.
	Clusters(ctx context.Context) ([]Cluster, error)
	// Cluster is one of them with its nodes. Errors: jobs.ErrNotFound.
	Cluster(ctx context.Context, name string) (Cluster, error)
	// QueueLimits is the maxConcurrency of every AIJobQueue, by name.
	QueueLimits(ctx context.Context) (map[string]int, error)
	// Workflow is an AgentWorkflow. Errors: jobs.ErrNotFound.
	Workflow(ctx context.Context, namespace, name string) (*aiplatformv1alpha1.AgentWorkflow, error)
	// Check says why the API server cannot be used; nil: it can.
	Check(ctx context.Context) error
}

// Lines calls tell with each line of a log, one at a time and with its end, until there are no more, tell fails or the context is done.
type Lines func(ctx context.Context, tell func(line string) error) error

// LinesOf a text.
func LinesOf(text string) Lines {
	return func(_ context.Context, tell func(string) error) error {
		for line := range strings.Lines(text) {
			if err := tell(line); err != nil {
				return err
			}
		}
		return nil
	}
}

// LogOptions say which lines of a log are wanted.
type LogOptions struct {
	// Follow goes on with the lines that come later.
	Follow bool
	// Tail is how many of the last lines are wanted, 0 to 10000.
	Tail int
	// Timestamps puts the time before every line.
	Timestamps bool
}

// Cluster is a ComputeCluster, as REST tells it.
type Cluster struct {
	Name string `json:"name"`
	// Status is healthy, degraded, unhealthy or unknown.
	Status        string `json:"status"`
	TotalNodes    int    `json:"total_nodes"`
	AvailableGPUs int    `json:"available_gpus"`
	TotalGPUs     int    `json:"total_gpus"`
	RunningJobs   int    `json:"running_jobs"`
	// Capacity is what the cluster's spec allows, whatever its nodes could hold; nil: no limit.
	Capacity *ClusterCapacity `json:"capacity,omitempty"`
	// Nodes by name; nil when one did not ask for a cluster by its name.
	Nodes []Node `json:"nodes,omitempty"`
}

// ClusterCapacity limits what runs in a cluster; nil: no limit.
type ClusterCapacity struct {
	MaxJobs *int `json:"max_jobs"`
	MaxGPUs *int `json:"max_gpus"`
}

// Node of a cluster.
type Node struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	// GPUs are counted, CPU and Memory are Kubernetes quantities.
	GPUs   Count  `json:"gpus"`
	CPU    Amount `json:"cpu"`
	Memory Amount `json:"memory"`
}

// Count of what a node has, and how much of it nothing has requested.
type Count struct {
	Total     int `json:"total"`
	Available int `json:"available"`
}

// Amount of what a node has, and how much of it nothing has requested, as quantities, for example 64Gi.
type Amount struct {
	Total     string `json:"total"`
	Available string `json:"available"`
}
