// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"fmt"
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// The variable of an expression and its fields, as upstream's environment declares them.
const (
	deviceVariable = "device"
	driverField    = "driver"
	multipleField  = "allowMultipleAllocations"
	attributes     = "attributes"
	capacity       = "capacity"
)

// read is one thing that an expression reads of a device. Without a name it is all of the domain,
// without a domain all of the field.
type read struct {
	field        string
	domain, name string
}

// reads are what an expression reads of a device, sorted; nil for all of it.
type reads []read

// readsOf finds out what an expression reads. A form that is not known here reads the device as a
// whole.
func readsOf(expression celast.Expr) reads {
	found := map[read]struct{}{}
	if !collect(expression, found) {
		return nil
	}
	all := reads{}
	for r := range found {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b read) int {
		return strings.Compare(a.field+"\x00"+a.domain+"\x00"+a.name, b.field+"\x00"+b.domain+"\x00"+b.name)
	})
	return all
}

// collect adds what an expression and its parts read. It returns false if that is the device as a
// whole.
func collect(expression celast.Expr, found map[read]struct{}) bool {
	if r, ok := readBy(expression); ok {
		found[r] = struct{}{}
		return true
	}
	every := func(parts ...celast.Expr) bool {
		for _, part := range parts {
			if !collect(part, found) {
				return false
			}
		}
		return true
	}
	switch expression.Kind() {
	case celast.LiteralKind:
		return true
	case celast.IdentKind:
		return expression.AsIdent() != deviceVariable
	case celast.SelectKind:
		return every(expression.AsSelect().Operand())
	case celast.CallKind:
		call := expression.AsCall()
		return (!call.IsMemberFunction() || every(call.Target())) && every(call.Args()...)
	case celast.ListKind:
		return every(expression.AsList().Elements()...)
	case celast.MapKind:
		for _, entry := range expression.AsMap().Entries() {
			if !every(entry.AsMapEntry().Key(), entry.AsMapEntry().Value()) {
				return false
			}
		}
		return true
	case celast.ComprehensionKind:
		c := expression.AsComprehension()
		return every(c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result())
	}
	return false
}

// readBy returns what an expression reads if it is device.FIELD, device.FIELD["domain"], or
// device.FIELD["domain"].name, the last also as ["name"].
func readBy(expression celast.Expr) (read, bool) {
	operand, key, ok := member(expression)
	if !ok {
		return read{}, false
	}
	if isDevice(operand) {
		return read{field: key}, true
	}
	operand, domain, ok := member(operand)
	if !ok {
		return read{}, false
	}
	field := func(name string) bool { return name == attributes || name == capacity }
	if isDevice(operand) && field(domain) {
		return read{field: domain, domain: key}, true
	}
	operand, name, ok := member(operand)
	if ok && isDevice(operand) && field(name) {
		return read{field: name, domain: domain, name: key}, true
	}
	return read{}, false
}

func isDevice(expression celast.Expr) bool {
	return expression.Kind() == celast.IdentKind && expression.AsIdent() == deviceVariable
}

// member takes x.key and x["key"] apart.
func member(expression celast.Expr) (of celast.Expr, key string, ok bool) {
	switch expression.Kind() {
	case celast.SelectKind:
		selected := expression.AsSelect()
		return selected.Operand(), selected.FieldName(), true
	case celast.CallKind:
		call := expression.AsCall()
		if call.FunctionName() != operators.Index || len(call.Args()) != 2 ||
			call.Args()[1].Kind() != celast.LiteralKind {
			return nil, "", false
		}
		key, ok := call.Args()[1].AsLiteral().Value().(string)
		return call.Args()[0], key, ok
	}
	return nil, "", false
}

// key returns a text that is the same for two devices of which the expression reads the same.
func (r reads) key(driver string, device *resourceapi.Device) string {
	var text strings.Builder
	if r == nil {
		r = reads{{field: driverField}, {field: multipleField}, {field: attributes}, {field: capacity}}
	}
	for _, one := range r {
		switch {
		case one.field == driverField:
			writePart(&text, driver)
		case one.field == multipleField:
			fmt.Fprintf(&text, "%t;", ptr.Deref(device.AllowMultipleAllocations, false))
		case one.field == attributes && one.name != "":
			for _, name := range names(one, driver) {
				if value, ok := device.Attributes[name]; ok {
					writeAttribute(&text, &value)
				}
			}
			text.WriteByte('|')
		case one.field == capacity && one.name != "":
			for _, name := range names(one, driver) {
				if value, ok := device.Capacity[name]; ok {
					writePart(&text, value.Value.String())
				}
			}
			text.WriteByte('|')
		case one.field == attributes:
			for _, name := range sortedIn(device.Attributes, one.domain, driver) {
				writePart(&text, string(name))
				value := device.Attributes[name]
				writeAttribute(&text, &value)
			}
			text.WriteByte('|')
			if one.domain == "" {
				writePart(&text, driver) // it is the domain of names without one
			}
		case one.field == capacity:
			for _, name := range sortedIn(device.Capacity, one.domain, driver) {
				writePart(&text, string(name))
				value := device.Capacity[name]
				writePart(&text, value.Value.String())
			}
			text.WriteByte('|')
			if one.domain == "" {
				writePart(&text, driver)
			}
		}
	}
	return text.String()
}

// names returns how a device may have what is read: the driver's own domain may be left out.
func names(r read, driver string) []resourceapi.QualifiedName {
	all := []resourceapi.QualifiedName{resourceapi.QualifiedName(r.domain + "/" + r.name)}
	if r.domain == driver {
		all = append(all, resourceapi.QualifiedName(r.name))
	}
	return all
}

// sortedIn returns the names in a domain; all of them if it is "".
func sortedIn[V any](values map[resourceapi.QualifiedName]V, domain, driver string) []resourceapi.QualifiedName {
	var all []resourceapi.QualifiedName
	for name := range values {
		own, _, qualified := strings.Cut(string(name), "/")
		if !qualified {
			own = driver
		}
		if domain == "" || domain == own {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// writePart writes a text so that nothing after it can be taken for a part of it.
func writePart(text *strings.Builder, part string) { fmt.Fprintf(text, "%d:%s;", len(part), part) }

func writeAttribute(text *strings.Builder, value *resourceapi.DeviceAttribute) {
	switch {
	case value.StringValue != nil:
		text.WriteByte('s')
		writePart(text, *value.StringValue)
	case value.VersionValue != nil:
		text.WriteByte('v')
		writePart(text, *value.VersionValue)
	case value.IntValue != nil:
		fmt.Fprintf(text, "i%d;", *value.IntValue)
	case value.BoolValue != nil:
		fmt.Fprintf(text, "b%t;", *value.BoolValue)
	default:
		writePart(text, value.String())
	}
}
