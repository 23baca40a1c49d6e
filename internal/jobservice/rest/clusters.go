package rest

import (
	"encoding/json"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

func (s *service) listClusters(c *call) ([]byte, error) {
	answer := struct {
		Clusters []Cluster `json:"clusters"`
	}{[]Cluster{}}
	if s.Kubernetes != nil {
		clusters, err := s.Kubernetes.Clusters(c.Context())
		if err != nil {
			return nil, err
		}
		answer.Clusters = append(answer.Clusters, clusters...)
	}
	return json.Marshal(answer)
}

func (s *service) getCluster(c *call) ([]byte, error) {
	name := c.PathValue("name")
	if s.Kubernetes == nil || !isLabel(name) {
		return nil, jobs.ErrNotFound
	}
	cluster, err := s.Kubernetes.Cluster(c.Context(), name)
	if err != nil {
		return nil, err
	}
	answer := struct {
		Cluster
		Capacity ClusterCapacity `json:"capacity"`
		Nodes    []Node          `json:"nodes"`
	}{Cluster: cluster, Nodes: append([]Node{}, cluster.Nodes...)}
	if cluster.Capacity != nil {
		answer.Capacity = *cluster.Capacity
	}
	return json.Marshal(answer)
}
