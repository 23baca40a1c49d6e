package manager

import (
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/controllers/nodeagent"
)

// nodeAgentImageVariable names the image of the node agent: the manager's own.
const nodeAgentImageVariable = "RELATED_IMAGE_NODE_AGENT"

// nodeAgentOptions are the flags of the node agent.
type nodeAgentOptions struct {
	image       string
	metadataURL string
}

func (o *nodeAgentOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.image, "node-agent-image", envOr(nodeAgentImageVariable, envOr(agentImageVariable, "spot-training-operator:latest")),
		"image of the agent on spot nodes: the manager's own (environment: "+nodeAgentImageVariable+")")
	flags.StringVar(&o.metadataURL, "node-agent-metadata-url", "",
		"where the agent on spot nodes finds the instance's metadata server (default: Compute Engine's, by its address)")
}

// addNodeAgent has the agent put on spot nodes. A manager that does not know its namespace has nowhere to put it.
func addNodeAgent(mgr ctrl.Manager, o options) error {
	if o.webhooks.namespace == "" {
		mgr.GetLogger().Info("--namespace is not set: no node agent is put on spot nodes", "environment", namespaceVariable)
		return nil
	}
	agents := &nodeagent.Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(),
		Settings: nodeagent.Settings{Namespace: o.webhooks.namespace, Image: o.nodeAgent.image, MetadataURL: o.nodeAgent.metadataURL},
	}
	return agents.SetupWithManager(mgr)
}
