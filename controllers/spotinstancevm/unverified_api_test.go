package spotinstancevm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// No pod is scheduled on a machine before the operator has seen that it is the instance.
func TestAPIAnInstanceRegistersItsNodeWithTheTaintOfOneThatIsNotVerified(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(newFuse(0))
	vm := c.vm("t4")
	c.pod("t4", "bert", 0)
	c.await(vm, "a ready instance", c.agree(1))

	script := c.gce.Instances()[0].Metadata["startup-script"]
	const taints = `"taints":[{"key":"training.dcnlab.com/unverified","effect":"NoSchedule"}]`
	assert.Equal(t, 2, strings.Count(script, taints), "in both forms of the configuration:\n%s", script)
}
