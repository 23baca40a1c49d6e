package workflowspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// costLimit bounds what one evaluation may take: some milliseconds.
const costLimit = 100_000

// Names that a condition sees.
const (
	variableInputs = "inputs"
	variableStages = "stages"
	fieldOutputs   = "outputs"
)

// environment is what conditions are compiled in.
var environment = sync.OnceValue(func() *cel.Env {
	env, err := cel.NewEnv(
		cel.Variable(variableInputs, cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable(variableStages, cel.MapType(cel.StringType, cel.MapType(cel.StringType, cel.MapType(cel.StringType, cel.StringType)))),
		// Not the library of string functions: replace and join make, of small texts, more than there is memory, before any
		// cost is counted.
		cel.Function("split", cel.MemberOverload("string_split_string",
			[]*cel.Type{cel.StringType, cel.StringType}, cel.ListType(cel.StringType), cel.BinaryBinding(split))),
		cel.DefaultUTCTimeZone(true),
	)
	if err != nil {
		panic(err) // the declarations are constants
	}
	return env
})

// split makes a list of the parts of a text, no longer together than the text.
func split(text, by ref.Val) ref.Val {
	whole, isText := text.(types.String)
	separator, isSeparator := by.(types.String)
	if !isText || !isSeparator {
		return types.MaybeNoSuchOverloadErr(text)
	}
	return types.DefaultTypeAdapter.NativeToValue(strings.Split(string(whole), string(separator)))
}

// compile checks a condition.
func compile(condition string) (*cel.Ast, error) {
	ast, issues := environment().Compile(condition)
	if issues != nil && issues.Err() != nil {
		var what []string
		for _, problem := range issues.Errors() {
			what = append(what, fmt.Sprintf("column %d: %s", problem.Location.Column()+1, oneLine(problem.Message)))
		}
		return nil, errors.New(strings.Join(what, "; "))
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("it yields %s and not true or false: compare it with something", ast.OutputType())
	}
	return ast, nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// mentioned are the inputs and outputs that a condition names. Those that it computes the name of are not among them.
func mentioned(ast *cel.Ast) []reference {
	var found []reference
	celast.PreOrderVisit(ast.NativeRep().Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		path := pathOf(e)
		switch {
		case len(path) == 2 && path[0] == variableInputs:
			found = append(found, reference{input: path[1]})
		case len(path) == 2 && path[0] == variableStages:
			found = append(found, reference{stage: path[1]})
		case len(path) == 4 && path[0] == variableStages && path[2] == fieldOutputs:
			found = append(found, reference{stage: path[1], output: path[3]})
		case len(path) == 3 && path[0] == variableStages && path[2] != fieldOutputs:
			found = append(found, reference{stage: path[1], output: "." + path[2]})
		}
	}))
	// Every part of an expression is visited, the whole before its parts: stages.a.outputs.b mentions stages.a too.
	return slices.DeleteFunc(found, func(r reference) bool {
		return r.output == "" && r.stage != "" && slices.ContainsFunc(found, func(o reference) bool { return o.stage == r.stage && o.output != "" })
	})
}

// pathOf is a selection of fields from a variable, such as stages.a.outputs.b and stages['a'].outputs.b; nil for anything
// else.
func pathOf(e celast.Expr) []string {
	switch e.Kind() {
	case celast.IdentKind:
		return []string{e.AsIdent()}
	case celast.SelectKind:
		if of := pathOf(e.AsSelect().Operand()); of != nil {
			return append(of, e.AsSelect().FieldName())
		}
	case celast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Index || len(call.Args()) != 2 || call.Args()[1].Kind() != celast.LiteralKind {
			return nil
		}
		key, ok := call.Args()[1].AsLiteral().(types.String)
		if of := pathOf(call.Args()[0]); ok && of != nil {
			return append(of, string(key))
		}
	}
	return nil
}

// Holds evaluates the condition of a stage.
func Holds(stage *aiplatformv1alpha1.Stage, values Values) (bool, error) {
	if stage.Condition == "" {
		return true, nil
	}
	ast, err := compile(stage.Condition)
	if err != nil {
		return false, err
	}
	program, err := environment().Program(ast, cel.CostLimit(costLimit))
	if err != nil {
		return false, err
	}
	inputs := map[string]string{}
	for name, value := range values.Inputs {
		inputs[name] = string(value)
	}
	stages := map[string]map[string]map[string]string{}
	for name, outputs := range values.Outputs {
		stages[string(name)] = map[string]map[string]string{fieldOutputs: outputs}
	}
	result, _, err := program.Eval(map[string]any{variableInputs: inputs, variableStages: stages})
	if err != nil {
		return false, errors.New(oneLine(err.Error()))
	}
	holds, ok := result.Value().(bool)
	if !ok {
		return false, fmt.Errorf("it yields %v and not true or false", result.Value())
	}
	return holds, nil
}
