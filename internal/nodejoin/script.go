package nodejoin

import (
	_ "embed" // the script
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

//go:embed script.sh
var scriptText string

// condition is a part of script.sh that is left out unless its field is set. text/template would do, but links all methods of all types
// into the program, which doubles its size.
var condition = regexp.MustCompile(`(?s)\s+\{\{- if \.(\w+)\}\}(.*?)\s+\{\{- end\}\}`)

// defaultLimit is the default of spec.joinTimeout.
const defaultLimit = 15 * time.Minute

// script says which parts the script has, and their values.
type script struct {
	Title string
	// Prepare is the startup script of the SpotInstanceVM in base64, in lines.
	Prepare            string
	WaitForPreparation bool
	Join               bool
	// Limit are the seconds within which the instance must have joined.
	Limit            int
	Secret           string
	Endpoint, Node   string
	V1beta3, V1beta4 string
}

func (s script) String() string {
	set := map[string]bool{"Prepare": s.Prepare != "", "WaitForPreparation": s.WaitForPreparation, "Join": s.Join}
	text := condition.ReplaceAllStringFunc(scriptText, func(part string) string {
		if found := condition.FindStringSubmatch(part); set[found[1]] {
			return found[2]
		}
		return ""
	})
	return strings.NewReplacer(
		"{{.Title}}", s.Title, "{{.Prepare}}", s.Prepare, "{{.Limit}}", strconv.Itoa(s.Limit), "{{.Secret}}", s.Secret,
		"{{.Endpoint}}", s.Endpoint, "{{.Node}}", s.Node, "{{.V1beta3}}", s.V1beta3, "{{.V1beta4}}", s.V1beta4,
	).Replace(text)
}

// withJoin adds kubeadm join.
func (s script) withJoin(join Join, limit time.Duration) (script, error) {
	if err := join.validate(); err != nil {
		return script{}, err
	}
	if limit <= 0 {
		limit = defaultLimit
	}
	s.Join, s.Limit = true, int(limit.Seconds())
	s.Secret, s.Endpoint, s.Node = join.secret(), join.Cluster.Endpoint, join.Instance.Name
	var err error
	if s.V1beta3, err = join.configuration("v1beta3"); err != nil {
		return script{}, err
	}
	s.V1beta4, err = join.configuration("v1beta4")
	return s, err
}

// startupScript prepares the instance and joins it.
func startupScript(join Join, spec *spotv1alpha1.SpotInstanceVMSpec) (string, error) {
	s := script{Title: fmt.Sprintf("Prepares instance %s and joins it to the cluster.", join.Instance.Name), Prepare: encode(spec.StartupScript)}
	s, err := s.withJoin(join, spec.JoinTimeout.Duration)
	return s.String(), err
}

// preparation only prepares the instance; empty when there is nothing to do.
func preparation(join Join, spec *spotv1alpha1.SpotInstanceVMSpec) string {
	if spec.StartupScript == "" {
		return ""
	}
	return script{Title: fmt.Sprintf("Prepares instance %s.", join.Instance.Name), Prepare: encode(spec.StartupScript)}.String()
}

// joinScript joins an instance once it is prepared.
func joinScript(join Join, spec *spotv1alpha1.SpotInstanceVMSpec) (string, error) {
	s := script{
		Title:              fmt.Sprintf("Joins instance %s to the cluster.", join.Instance.Name),
		WaitForPreparation: spec.StartupScript != "",
	}
	s, err := s.withJoin(join, spec.JoinTimeout.Duration)
	return s.String(), err
}

// encode has a script in base64, so that it arrives as it was written whatever it holds. One that does not say what runs
// it is one for bash.
func encode(script string) string {
	if script == "" {
		return ""
	}
	if !strings.HasPrefix(script, "#!") {
		script = "#!/bin/bash\n" + script
	}
	text := base64.StdEncoding.EncodeToString([]byte(script))
	const width = 120
	var lines []string
	for line := range slices.Chunk([]byte(text), width) {
		lines = append(lines, string(line))
	}
	return strings.Join(lines, "\n")
}
