package source

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/internal/content/tree"
)

// archiveKey is the key of the ConfigMap that has the archive.
const archiveKey = "source.tar.gz"

// maxArchiveBytes is what fits into a ConfigMap, with room for the rest of it.
const maxArchiveBytes = 1_000_000

func newPack() *cobra.Command {
	var name, namespace, output string
	command := &cobra.Command{
		Use:   "pack DIR",
		Short: "Print a ConfigMap with the files of a directory",
		Long: "Print an immutable ConfigMap with the files of a directory, for spec.source.configMap of a job. The same files\n" +
			"give the same ConfigMap. Files named .git and those that DIR/.trainignore lists, in the syntax of .gitignore,\n" +
			"are left out. A ConfigMap holds about 1 MB of compressed files.",
		Example: "  spot-training-operator source pack ./train | kubectl create -f -",
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			configMap, sum, err := pack(arguments[0], name, namespace)
			if err != nil {
				return err
			}
			text, err := yaml.Marshal(configMap)
			if err != nil {
				return err
			}
			if output == "" {
				_, err = command.OutOrStdout().Write(text)
			} else {
				err = os.WriteFile(output, text, 0o644) //nolint:gosec // as readable as what it is made from
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(command.ErrOrStderr(), "packed %d files with %d bytes: set spec.source.configMap.name to %s\n",
				sum.Files, sum.SizeBytes, configMap.Name)
			return nil
		},
	}
	command.Flags().StringVar(&name, "name", "", "name of the ConfigMap (default: that of the directory with the digest of the files)")
	command.Flags().StringVar(&namespace, "namespace", "", "namespace of the ConfigMap (default: that of kubectl)")
	command.Flags().StringVarP(&output, "output", "o", "", "file to write to (default: the standard output)")
	return command
}

// pack makes the ConfigMap of a directory.
func pack(dir, name, namespace string) (*corev1.ConfigMap, tree.Sum, error) {
	if problems := validation.IsDNS1123Subdomain(name); name != "" && len(problems) > 0 {
		return nil, tree.Sum{}, fmt.Errorf("--name: %s", problems[0])
	}
	if problems := validation.IsDNS1123Label(namespace); namespace != "" && len(problems) > 0 {
		return nil, tree.Sum{}, fmt.Errorf("--namespace: %s", problems[0])
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, tree.Sum{}, err
	}
	defer func() { _ = root.Close() }()
	skip, err := ignored(root)
	if err != nil {
		return nil, tree.Sum{}, err
	}
	entries, err := tree.List(root, skip)
	if err != nil {
		return nil, tree.Sum{}, fmt.Errorf("%w, or add it to %s", err, filepath.Join(dir, ignoreFile))
	}
	if len(entries) == 0 {
		return nil, tree.Sum{}, fmt.Errorf("%s has no files", dir)
	}
	if err := checkLimits(entries); err != nil {
		return nil, tree.Sum{}, err
	}
	sum, err := tree.SumOf(root, entries)
	if err != nil {
		return nil, tree.Sum{}, err
	}
	archive := &capped{left: maxArchiveBytes}
	if err := writeArchive(archive, root, entries); err != nil {
		return nil, tree.Sum{}, err
	}
	if archive.written > maxArchiveBytes {
		return nil, tree.Sum{}, tooLarge(archive.written, dir, entries)
	}
	if name == "" {
		if name, err = defaultName(dir, sum.Digest); err != nil {
			return nil, tree.Sum{}, err
		}
	}
	immutable := true
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Immutable:  &immutable,
		BinaryData: map[string][]byte{archiveKey: archive.kept},
	}, sum, nil
}

// tooLarge says that an archive does not fit, and what takes the space.
func tooLarge(bytes int64, dir string, entries []tree.Entry) error {
	text := fmt.Sprintf("the archive of %s has %d bytes, and a ConfigMap holds at most %d: add what the program does not need to %s, "+
		"or use git, an OCI artifact or an archive in spec.source. The largest files:",
		dir, bytes, maxArchiveBytes, filepath.Join(dir, ignoreFile))
	largest := slices.SortedStableFunc(slices.Values(entries), func(a, b tree.Entry) int { return int(b.SizeBytes - a.SizeBytes) })
	for _, entry := range largest[:min(5, len(largest))] {
		text += fmt.Sprintf("\n%12d %s", entry.SizeBytes, entry.Path)
	}
	return errors.New(text)
}

// defaultName is the name of a directory, as one of a ConfigMap, with the beginning of the digest: the ConfigMap cannot be changed.
func defaultName(dir, digest string) (string, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	suffix := "-" + strings.TrimPrefix(digest, "sha256:")[:10]
	label := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(filepath.Base(absolute)), "-")
	label = strings.Trim(label, "-")
	if label == "" {
		label = "source"
	}
	label = strings.TrimRight(label[:min(len(label), validation.DNS1123LabelMaxLength-len(suffix))], "-")
	return label + suffix, nil
}

// capped keeps the first bytes that are written, and counts all.
type capped struct {
	kept    []byte
	left    int
	written int64
}

var _ io.Writer = &capped{}

func (c *capped) Write(p []byte) (int, error) {
	keep := min(len(p), c.left)
	c.kept, c.left, c.written = append(c.kept, p[:keep]...), c.left-keep, c.written+int64(len(p))
	return len(p), nil
}
