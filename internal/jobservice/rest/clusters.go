package rest

import (
	"net/http"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

func (s *service) listClusters(c *call) error {
	answer := struct {
		Clusters []Cluster `json:"clusters"`
	}{[]Cluster{}}
	if s.Kubernetes != nil {
		clusters, err := s.Kubernetes.Clusters(c.Context())
		if err != nil {
			return err
		}
		answer.Clusters = append(answer.Clusters, clusters...)
	}
	return c.answerValue(http.StatusOK, answer)
}

func (s *service) getCluster(c *call) error {
	name := c.PathValue("name")
	if s.Kubernetes == nil || !isLabel(name) {
		return jobs.ErrNotFound
	}
	cluster, err := s.Kubernetes.Cluster(c.Context(), name)
	if err != nil {
		return err
	}
	answer := struct {
		Cluster
		Capacity ClusterCapacity `json:"capacity"`
		Nodes    []Node          `json:"nodes"`
	}{Cluster: cluster, Nodes: append([]Node{}, cluster.Nodes...)}
	if cluster.Capacity != nil {
		answer.Capacity = *cluster.Capacity
	}
	return c.answerValue(http.StatusOK, answer)
}
