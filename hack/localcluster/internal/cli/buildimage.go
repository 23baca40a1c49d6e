package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/image"
)

type imageFlags struct {
	spec                             image.Spec
	files, labels, annotations, tags []string
	labelFiles                       []string
	entrypoint, cmd                  string
	output                           string
	load, push                       bool
}

func buildImageCommand(f *folders) *cobra.Command {
	var i imageFlags
	cmd := &cobra.Command{
		Use: "build-image --tag NAME [flags]", Short: "Build an image without a container engine", Args: cobra.NoArgs,
		Example: "  localcluster build-image --tag demo:dev --file bin/manager:/manager:0755 --entrypoint /manager \\\n" +
			"    --user 65532:65532 --passwd-nonroot --with-ca-certificates --load",
		RunE: func(cmd *cobra.Command, _ []string) error { return i.run(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&i.tags, "tag", nil, "name of the image; may be repeated")
	flags.StringVar(&i.spec.RootFS, "rootfs", "", "folder or tar file with the root file system to start from")
	flags.StringArrayVar(&i.files, "file", nil, "file or folder to add, source:/path[:mode[:user:group]], with an owner folders keep their permissions; may be repeated")
	flags.StringVar(&i.entrypoint, "entrypoint", "", "entrypoint: a path, or a JSON list of program and arguments")
	flags.StringVar(&i.cmd, "cmd", "", "default arguments: a word, or a JSON list")
	flags.StringVar(&i.spec.User, "user", "", "user or user:group to run as")
	flags.StringArrayVar(&i.spec.Env, "env", nil, "environment variable NAME=value; may be repeated")
	flags.StringArrayVar(&i.labels, "label", nil, "label name=value; may be repeated")
	flags.StringArrayVar(&i.labelFiles, "labels-from", nil, "annotations.yaml of a bundle whose annotations become labels, which --label overrides; may be repeated")
	flags.StringArrayVar(&i.annotations, "annotation", nil, "annotation of the manifest, name=value; may be repeated")
	flags.StringVar(&i.spec.WorkDir, "workdir", "", "folder to start in")
	flags.BoolVar(&i.spec.CACertificates, "with-ca-certificates", false, "add this machine's trusted certificates")
	flags.BoolVar(&i.spec.Accounts, "passwd-nonroot", false, "add accounts nonroot (65532) and trainer (1000), and a /tmp that all can write")
	flags.StringVar(&i.output, "output", "", "write the image to this tar file")
	flags.BoolVar(&i.load, "load", false, "load the image into the running cluster's node")
	flags.BoolVar(&i.push, "push", false, "push the image to the running cluster's registry, also under a name of a mirrored one (up --mirror)")
	return cmd
}

func (i imageFlags) run(ctx context.Context, f *folders) error {
	begin := time.Now()
	spec, err := i.resolve()
	if err != nil {
		return err
	}
	var c cluster.Cluster
	if i.load || i.push {
		if c, err = f.open(); err != nil {
			return err
		}
		if c.Options.Simulate {
			return cluster.ErrSimulated
		}
	}
	built, err := image.Build(spec)
	if err != nil {
		return err
	}
	defer built.Close()
	digest, err := built.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("built %s %s\n", strings.Join(i.tags, ", "), digest)
	if i.output != "" {
		if err := writeFile(i.output, built, i.tags); err != nil {
			return err
		}
		fmt.Println("wrote", i.output)
	}
	if i.load {
		names, err := c.LoadBuilt(ctx, built, i.tags)
		if err != nil {
			return err
		}
		fmt.Println("loaded", strings.Join(names, ", "))
	}
	if i.push {
		for _, tag := range i.tags {
			push, pull := c.Options.Published(tag)
			if err := built.Push(ctx, push); err != nil {
				return err
			}
			fmt.Println("pushed", pull, digest)
		}
	}
	fmt.Printf("done in %s\n", time.Since(begin).Round(100*time.Millisecond))
	return nil
}

func (i imageFlags) resolve() (image.Spec, error) {
	spec := i.spec
	if len(i.tags) == 0 {
		return spec, errors.New("--tag is needed")
	}
	if i.output == "" && !i.load && !i.push {
		return spec, errors.New("one of --output, --load and --push is needed")
	}
	for _, tag := range i.tags {
		if _, err := image.FullName(tag); err != nil {
			return spec, err
		}
	}
	for _, text := range i.files {
		file, err := image.ParseFile(text)
		if err != nil {
			return spec, err
		}
		spec.Files = append(spec.Files, file)
	}
	var err error
	if spec.Labels, err = i.allLabels(); err != nil {
		return spec, err
	}
	if spec.Annotations, err = split("annotation", i.annotations); err != nil {
		return spec, err
	}
	if spec.Entrypoint, err = words("entrypoint", i.entrypoint); err != nil {
		return spec, err
	}
	spec.Cmd, err = words("cmd", i.cmd)
	return spec, err
}

func (i imageFlags) allLabels() (map[string]string, error) {
	labels := map[string]string{}
	for _, path := range i.labelFiles {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("--labels-from: %w", err)
		}
		var file struct {
			Annotations map[string]string `json:"annotations"`
		}
		if err := yaml.Unmarshal(content, &file); err != nil {
			return nil, fmt.Errorf("--labels-from %s: %w", path, err)
		}
		if len(file.Annotations) == 0 {
			return nil, fmt.Errorf("--labels-from %s: want a YAML file with a map named annotations, as a bundle has in metadata/annotations.yaml", path)
		}
		maps.Copy(labels, file.Annotations)
	}
	given, err := split("label", i.labels)
	maps.Copy(labels, given)
	return labels, err
}

// words reads a JSON list, or takes the whole text as one word.
func words(flag, text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	if !strings.HasPrefix(text, "[") {
		return []string{text}, nil
	}
	var list []string
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("--%s %q: %w", flag, text, err)
	}
	return list, nil
}

func writeFile(path string, built *image.Image, tags []string) error {
	partial := path + ".partial"
	file, err := os.Create(partial)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(file, 1<<20)
	err = built.WriteArchive(buffered, tags)
	if err := errors.Join(err, buffered.Flush(), file.Close()); err != nil {
		_ = os.Remove(partial)
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(partial, path)
}
