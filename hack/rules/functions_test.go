// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// maxFunctionFields is how many fields of structs in functionsIn are functions: none is added
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
		"pkg/node/nri":                  "validator.leave",
		"pkg/node/nrifront":             "Devices.stop Front.leave Front.stop",
		"pkg/scheduler/frameworkplugin": "background.stop",
	},
	row: {
		"pkg/node/app":         "check.note check.run",
		"pkg/node/conformance": "check.observe check.run",
		"pkg/node/criproxy":    "Limit.Refuse",
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
				t.Errorf("%s is a function: have the struct's package declare an interface of one or two methods in "+
					"its place, or add it to functionFields with its reason", field)
			}
		}
	}
	for field := range reasons {
		if !found[field] {
			t.Errorf("functionFields has %s, which is no function any more: remove it, and lower maxFunctionFields",
				field)
		}
	}
	if len(found) != maxFunctionFields {
		t.Errorf("%d fields of structs are functions, and maxFunctionFields is %d", len(found), maxFunctionFields)
	}
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%d: %s", counts[reason], reason)
	}
}

// functionFieldsOf returns the fields of a package's structs whose type is a function, as
// Type.field, sorted. Import rules do not see whom such a field calls.
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
		if _, isFunction := field.Type().Underlying().(*types.Signature); isFunction {
			found[owners[field]+"."+field.Name()] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
