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
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/image"
)

type imageFlags struct {
	spec       image.Spec
	tags       []string
	fileLabels map[string]string
	output     string
	load, push bool
}

func buildImageCommand(f *folders) *cobra.Command {
	var i imageFlags
	cmd := &cobra.Command{
		Use: "build-image --tag NAME [flags]", Short: "Build an image without a container engine", Args: cobra.NoArgs,
		Example: "  localcluster build-image --tag demo:dev --file bin/manager:/manager:0755 --entrypoint /manager \\\n" +
			"    --user 65532:65532 --passwd-nonroot --with-ca-certificates --load",
		RunE: func(cmd *cobra.Command, _ []string) error { return i.run(cmd.Context(), f) },
	}
	i.register(cmd.Flags())
	return cmd
}

func (i *imageFlags) register(flags *pflag.FlagSet) {
	i.spec.Labels, i.spec.Annotations, i.fileLabels = map[string]string{}, map[string]string{}, map[string]string{}
	flags.Func("tag", "`name` of the image; may be repeated", func(tag string) error {
		i.tags = append(i.tags, tag)
		_, err := image.FullName(tag)
		return err
	})
	flags.StringVar(&i.spec.RootFS, "rootfs", "", "folder or tar file with the root file system to start from")
	flags.Func("file", "file or folder to add, `source:/path[:mode[:user:group]]`, with an owner folders keep their permissions; may be repeated",
		func(text string) error {
			file, err := image.ParseFile(text)
			i.spec.Files = append(i.spec.Files, file)
			return err
		})
	flags.Func("entrypoint", "entrypoint: a path, or a `JSON list` of program and arguments", words(&i.spec.Entrypoint))
	flags.Func("cmd", "default arguments: a word, or a `JSON list`", words(&i.spec.Cmd))
	flags.StringVar(&i.spec.User, "user", "", "user or user:group to run as")
	flags.StringArrayVar(&i.spec.Env, "env", nil, "environment variable NAME=value; may be repeated")
	flags.Func("label", "label `name=value`; may be repeated", assign(i.spec.Labels))
	flags.Func("labels-from", "annotations.yaml `file` of a bundle whose annotations become labels, which --label overrides; may be repeated", i.labelsFrom)
	flags.Func("annotation", "annotation of the manifest, `name=value`; may be repeated", assign(i.spec.Annotations))
	flags.StringVar(&i.spec.WorkDir, "workdir", "", "folder to start in")
	flags.BoolVar(&i.spec.CACertificates, "with-ca-certificates", false, "add this machine's trusted certificates")
	flags.BoolVar(&i.spec.Accounts, "passwd-nonroot", false, "add accounts nonroot (65532) and trainer (1000), and a /tmp that all can write")
	flags.StringVar(&i.output, "output", "", "write the image to this tar file")
	flags.BoolVar(&i.load, "load", false, "load the image into the running cluster's node")
	flags.BoolVar(&i.push, "push", false, "push the image to the running cluster's registry, also under a name of a mirrored one (up --mirror)")
}

func (i imageFlags) run(ctx context.Context, f *folders) error {
	begin := time.Now()
	if err := i.validate(); err != nil {
		return err
	}
	var c cluster.Cluster
	var err error
	if i.load || i.push {
		if c, err = f.open(); err != nil {
			return err
		}
		if c.Options.Simulate {
			return cluster.ErrSimulated
		}
	}
	i.spec.Labels = i.labels()
	built, err := image.Build(i.spec)
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

func (i imageFlags) validate() error {
	if len(i.tags) == 0 {
		return errors.New("--tag is needed")
	}
	if i.output == "" && !i.load && !i.push {
		return errors.New("one of --output, --load and --push is needed")
	}
	return nil
}

// labels are those of files and of flags, which count more.
func (i imageFlags) labels() map[string]string {
	labels := maps.Clone(i.fileLabels)
	maps.Copy(labels, i.spec.Labels)
	return labels
}

// labelsFrom adds the labels of a file.
func (i *imageFlags) labelsFrom(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var file struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return err
	}
	if len(file.Annotations) == 0 {
		return errors.New("want a YAML file with a map named annotations, as a bundle has in metadata/annotations.yaml")
	}
	maps.Copy(i.fileLabels, file.Annotations)
	return nil
}

// words reads a JSON list, or takes the whole text as one word.
func words(list *[]string) func(text string) error {
	return func(text string) error {
		switch {
		case text == "":
			*list = nil
		case strings.HasPrefix(text, "["):
			return json.Unmarshal([]byte(text), list)
		default:
			*list = []string{text}
		}
		return nil
	}
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
