// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// maxFunctionFields is how many fields of structs in functionsIn hold functions: none is added
// without another one that goes. Where one part of the program calls another, an interface that the
// caller declares shows whom it calls.
const maxFunctionFields = 24

// functionsIn are the directories whose fields are counted.
var functionsIn = []string{"pkg/node", "pkg/scheduler"}

// The reasons for which a field is a function.
const (
	machine = "it loads the plugin files of the machine, which tests replace"
	ends    = "it ends what the struct has begun"
	row     = "it is one row of a table in the code"
	once    = "it is a value that is made on its first use"
)

// functionFields are the fields by their reasons: names by package, each as Type.field, or as
// .field in a struct without a name.
var functionFields = map[string]map[string]string{
	machine: {
		"pkg/node/app":     "Options.loadPlugins",
		"pkg/node/plugins": "Files.load",
	},
	ends: {
		"pkg/node/conformance":          "session.stop",
		"pkg/node/criproxy":             "Proxy.end",
		"pkg/node/devicemanager":        "registryWatch.plugins",
		"pkg/node/nri":                  "validator.leave",
		"pkg/node/nrifrontend":          "Devices.stop Frontend.leave Frontend.stop",
		"pkg/scheduler/frameworkplugin": "background.stop",
	},
	row: {
		"pkg/node/app":         "check.note check.run",
		"pkg/node/conformance": "check.observe check.run",
		"pkg/node/enrolment":   "step.do",
		"pkg/node/firewall":    "reader.permits",
		"pkg/scheduler/config": "optional.parse",
		"pkg/scheduler/whatif": "change.make",
	},
	once: {
		"pkg/node/admission":       "podRef.annotation",
		"pkg/scheduler/allocation": "Inventory.byDevice Node.content Node.state Node.summary translation.sized",
	},
}

// TestEveryFunctionFieldHasAReason holds that functionFields has all fields and no others. With -v
// it prints how many each reason has.
func TestEveryFunctionFieldHasAReason(t *testing.T) {
	reasons := map[string]string{}
	for reason, packages := range functionFields {
		for directory, names := range packages {
			for _, name := range strings.Fields(names) {
				reasons[directory+" "+name] = reason
			}
		}
	}
	found, counts := map[string]bool{}, map[string]int{}
	for _, p := range loadPackages(t, "./pkg/...") {
		counted := slices.ContainsFunc(functionsIn, func(top string) bool { return within(p.directory, top) })
		if !counted {
			continue
		}
		for _, name := range p.functions {
			field := p.directory + " " + name
			found[field] = true
			counts[reasons[field]]++
			if reasons[field] == "" {
				t.Errorf("%s holds functions: have the struct's package declare an interface of one or two methods in "+
					"its place, or add it to functionFields with its reason", field)
			}
		}
	}
	for field := range reasons {
		if !found[field] {
			t.Errorf("functionFields has %s, which holds no function any more: remove it, and lower maxFunctionFields",
				field)
		}
	}
	if len(found) != maxFunctionFields {
		t.Errorf("%d fields of structs hold functions, and maxFunctionFields is %d", len(found), maxFunctionFields)
	}
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%d: %s", counts[reason], reason)
	}
}

func TestFieldsThatHoldFunctionsAreFoundInAnyType(t *testing.T) {
	const source = `package p

type (
	call     func()
	calls    []call
	set[T any] struct{ values []T }
	node     struct{ next *node; sub nodes }
	nodes    []*node
	caller   interface{ Call(func()) }

	table struct {
		direct  func()
		named   call
		slice   []func()
		array   [2]call
		element map[string]func()
		deep    map[string][]*calls
		channel chan func()
		pointer *func()
		generic set[func()]
		nested  *set[map[string]call]
		inner   struct{ field func() }

		number  int
		itself  *node
		method  caller
		numbers set[int]
	}
)
`
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}}
	checked, err := new(types.Config).Check("p", files, []*ast.File{file}, info)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		".field", "table.array", "table.channel", "table.deep", "table.direct", "table.element", "table.generic",
		"table.named", "table.nested", "table.pointer", "table.slice",
	}
	if diff := cmp.Diff(want, functionFieldsOf(checked, slices.Collect(maps.Values(info.Defs)))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// functionFieldsOf returns the fields of a package's structs that hold functions, as Type.field,
// sorted. Import rules do not see whom such a field calls.
func functionFieldsOf(checked *types.Package, definitions []types.Object) []string {
	owners := map[types.Object]string{}
	for _, name := range checked.Scope().Names() {
		object, isType := checked.Scope().Lookup(name).(*types.TypeName)
		if !isType {
			continue
		}
		if structure, isStruct := object.Type().Underlying().(*types.Struct); isStruct {
			for field := range structure.Fields() {
				owners[field] = name
			}
		}
	}
	found := map[string]bool{}
	for _, object := range definitions {
		field, isVariable := object.(*types.Var)
		if !isVariable || !field.IsField() {
			continue
		}
		if holdsFunction(field.Type()) {
			found[owners[field]+"."+field.Name()] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// holdsFunction reports whether a type is a function, or is made of one: as the element or key of a
// map, slice, array, channel or pointer, or as the argument of a generic type. Fields of structs
// are counted where the struct is declared, and methods of interfaces are none.
func holdsFunction(t types.Type) bool {
	return functionIn(t, map[types.Type]bool{})
}

// functionIn is holdsFunction without the types that were seen: a named type may be made of itself.
func functionIn(t types.Type, seen map[types.Type]bool) bool {
	t = types.Unalias(t)
	if seen[t] {
		return false
	}
	seen[t] = true
	if named, isNamed := t.(*types.Named); isNamed {
		for argument := range named.TypeArgs().Types() {
			if functionIn(argument, seen) {
				return true
			}
		}
	}
	switch made := t.Underlying().(type) {
	case *types.Signature:
		return true
	case *types.Map:
		return functionIn(made.Key(), seen) || functionIn(made.Elem(), seen)
	case interface{ Elem() types.Type }: // a slice, an array, a channel or a pointer
		return functionIn(made.Elem(), seen)
	default:
		return false
	}
}
