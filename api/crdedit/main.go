// Command crdedit changes what controller-gen wrote into a CRD, where no marker can say it. It runs by go generate,
// after controller-gen, and running it again changes nothing.
//
//	crdedit trim FILE FIELD                 takes the descriptions out of spec.FIELD (trim.go says why)
//	crdedit add-version [FLAGS] FILE        serves a copy of a version under another name (version.go)
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

const usage = `usage: crdedit trim FILE FIELD
       crdedit add-version --copy VERSION --name VERSION --storage VERSION [--deprecated WARNING] FILE`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "crdedit:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return fmt.Errorf("no command\n%s", usage)
	}
	switch command, rest := arguments[0], arguments[1:]; command {
	case "trim":
		if len(rest) != 2 {
			return fmt.Errorf("trim takes a file and a field\n%s", usage)
		}
		return edit(rest[0], func(crd map[string]any) error { return trim(crd, rest[1]) })
	case "add-version":
		return runAddVersion(rest)
	default:
		return fmt.Errorf("there is no command %q\n%s", command, usage)
	}
}

func runAddVersion(arguments []string) error {
	var a addition
	flags := flag.NewFlagSet("add-version", flag.ContinueOnError)
	flags.StringVar(&a.copyOf, "copy", "", "version to copy")
	flags.StringVar(&a.name, "name", "", "name of the copy")
	flags.StringVar(&a.storage, "storage", "", "version in which objects are stored")
	flags.StringVar(&a.warning, "deprecated", "", "marks the copy as deprecated; what the API server tells its users")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("add-version takes one file\n%s", usage)
	}
	return edit(flags.Arg(0), a.apply)
}

// edit rewrites the CRD in a file in the layout that controller-gen gives it.
func edit(file string, change func(crd map[string]any) error) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := change(crd); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte("---\n"), bytes.TrimLeft(out, "\n")...), 0o644)
}
