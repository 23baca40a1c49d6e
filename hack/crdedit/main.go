// Command crdedit changes what controller-gen wrote into a CRD, where no marker can say it. It runs by go generate,
// after controller-gen, and running it again changes nothing.
//
//	crdedit trim FILE FIELD                 takes the descriptions out of spec.FIELD (trim.go says why)
//	crdedit bound FILE FIELD                gives the int32s in spec.FIELD the bounds of their type (bound.go says why)
//	crdedit editable FILE KIND              lets fields be changed while a job does not run (editable.go)
//	crdedit pods FILE FIELD|.               limits the fields of api/podtemplate in spec.FIELD, or in spec itself (pods.go says how and why)
package main

import (
	"bytes"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

const usage = `usage: crdedit trim FILE FIELD
       crdedit bound FILE FIELD
       crdedit editable FILE KIND
       crdedit pods FILE FIELD|.`

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
	commands := map[string]func(crd map[string]any, argument string) error{"trim": inField(trim), "bound": inField(bound), "pods": pods, "editable": editable}
	command, ok := commands[arguments[0]]
	if !ok {
		return fmt.Errorf("there is no command %q\n%s", arguments[0], usage)
	}
	if len(arguments) != 3 {
		return fmt.Errorf("%s takes two arguments\n%s", arguments[0], usage)
	}
	return edit(arguments[1], func(crd map[string]any) error { return command(crd, arguments[2]) })
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
