// Package manifest fills in templates of Kubernetes objects and makes or deletes the objects.
package manifest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"text/template"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
)

// Render fills in the template at name in files. Its delimiters are << and >>; "quote" quotes a text for YAML, "base64"
// encodes one.
func Render(files fs.FS, name string, values any) ([]byte, error) {
	functions := template.FuncMap{
		"quote": func(text string) (string, error) {
			content, err := json.Marshal(text)
			return string(content), err
		},
		"base64": func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) },
	}
	parsed, err := template.New(path.Base(name)).Delims("<<", ">>").Funcs(functions).Option("missingkey=error").ParseFS(files, name)
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, values); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// Apply makes the objects, or changes those that are there to what the manifest says.
func Apply(ctx context.Context, c cluster.Cluster, manifest []byte) error {
	_, err := c.Kubectl(ctx, bytes.NewReader(manifest), "apply", "--server-side", "--force-conflicts", "-f", "-")
	return err
}

// Delete deletes those of the objects that exist, and waits until they are gone.
func Delete(ctx context.Context, c cluster.Cluster, manifest []byte) error {
	_, err := c.Kubectl(ctx, bytes.NewReader(manifest), "delete", "--ignore-not-found", "--timeout=120s", "-f", "-")
	return err
}

// ApplyKinds makes the CustomResourceDefinitions in files or folders, and waits until the API server serves them.
func ApplyKinds(ctx context.Context, c cluster.Cluster, paths ...string) error {
	files := fileArguments(paths)
	if _, err := c.Kubectl(ctx, nil, append([]string{"apply", "--server-side", "--force-conflicts"}, files...)...); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, nil, append([]string{"wait", "--for=condition=Established", "--timeout=60s"}, files...)...)
	return err
}

// DeleteFiles deletes those of the objects in files or folders that exist, and waits until they are gone.
func DeleteFiles(ctx context.Context, c cluster.Cluster, paths ...string) error {
	_, err := c.Kubectl(ctx, nil, append([]string{"delete", "--ignore-not-found", "--timeout=120s"}, fileArguments(paths)...)...)
	return err
}

func fileArguments(paths []string) []string {
	args := make([]string, len(paths))
	for i, path := range paths {
		args[i] = "--filename=" + path
	}
	return args
}
