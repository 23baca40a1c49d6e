package nodejoin

import (
	_ "embed" // the script
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

//go:embed script.sh
var scriptText string

// condition is a part of script.sh that is left out unless its field is set. text/template would do, but links all methods of all types
// into the program, which doubles its size.
var condition = regexp.MustCompile(`(?s)\s+\{\{- if \.(\w+)\}\}(.*?)\s+\{\{- end\}\}`)

// field is where a value goes.
var field = regexp.MustCompile(`\{\{\.(\w+)\}\}`)

// script is script.sh with the values of its fields. What is left out has none.
func script(values map[string]string) string {
	text := condition.ReplaceAllStringFunc(scriptText, func(part string) string {
		if found := condition.FindStringSubmatch(part); values[found[1]] != "" {
			return found[2]
		}
		return ""
	})
	return field.ReplaceAllStringFunc(text, func(name string) string { return values[field.FindStringSubmatch(name)[1]] })
}

// scriptToJoin is a script with kubeadm join.
func scriptToJoin(join Join, spec *spotv1alpha1.SpotInstanceVMSpec, values map[string]string) (string, error) {
	if err := join.validate(); err != nil {
		return "", err
	}
	maps.Copy(values, map[string]string{
		"Join": "true", "Limit": strconv.Itoa(int(Timeout(spec).Seconds())), "Secret": join.secret(), "Endpoint": join.Cluster.Endpoint,
		"Node": join.Instance.Name, "V1beta3": join.configuration("v1beta3"), "V1beta4": join.configuration("v1beta4"),
	})
	return script(values), nil
}

// startupScript prepares the instance and joins it.
func startupScript(join Join, spec *spotv1alpha1.SpotInstanceVMSpec) (string, error) {
	title := fmt.Sprintf("Prepares instance %s and joins it to the cluster.", join.Instance.Name)
	return scriptToJoin(join, spec, map[string]string{"Title": title, "Prepare": encode(spec.StartupScript)})
}

// preparation only prepares the instance; empty when there is nothing to do.
func preparation(join Join, spec *spotv1alpha1.SpotInstanceVMSpec) string {
	if spec.StartupScript == "" {
		return ""
	}
	return script(map[string]string{"Title": fmt.Sprintf("Prepares instance %s.", join.Instance.Name), "Prepare": encode(spec.StartupScript)})
}

// joinScript joins an instance once it is prepared.
func joinScript(join Join, spec *spotv1alpha1.SpotInstanceVMSpec) (string, error) {
	title := fmt.Sprintf("Joins instance %s to the cluster.", join.Instance.Name)
	return scriptToJoin(join, spec, map[string]string{"Title": title, "WaitForPreparation": spec.StartupScript})
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
