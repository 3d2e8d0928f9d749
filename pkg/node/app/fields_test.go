// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"flag"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kubedevice/kubedevice/pkg/documents/documentstest"
)

const fieldsPage = "../../../docs/reference/kubecri-fields.md"

var rewrite = flag.Bool("rewrite", false, "write "+fieldsPage)

const fieldsHead = `# Fields of kubecri.yaml

A [test](../../pkg/node/app/fields_test.go) writes this page from the fields and their flags. [The
file](kubecri-config.md) begins with ` + "`apiVersion: " + ConfigurationVersion + "` and\n`kind: " + ConfigurationKind +
	"`" + `.
An entry of ` + "`deviceFirewallVendors`" + ` has [these
fields](../use/device-firewall.md#vendors-that-are-not-built-in).

`

// TestReferenceHasTheFieldsOfTheConfiguration also holds each field to a flag: one without would
// set nothing.
func TestReferenceHasTheFieldsOfTheConfiguration(t *testing.T) {
	var want strings.Builder
	want.WriteString(fieldsHead)
	c := &Configuration{}
	describeFields(t, &want, c, reflect.ValueOf(c).Elem(), "")
	documentstest.Generated(t, fieldsPage, want.String(), *rewrite, "go test ./pkg/node/app -run Reference -rewrite")
}

// describeFields writes an item for each field of a part of c, whose names begin with prefix.
func describeFields(t *testing.T, page *strings.Builder, c *Configuration, part reflect.Value, prefix string) {
	for i := range part.NumField() {
		declared, field := part.Type().Field(i), part.Field(i)
		name, _, _ := strings.Cut(declared.Tag.Get("json"), ",")
		switch {
		case name == "apiVersion" || name == "kind":
			continue
		case field.Kind() == reflect.Struct:
			describeFields(t, page, c, field, prefix+name+".")
			continue
		}
		flag := flagOf(t, c, field, prefix+name)
		if flag.Deprecated != "" {
			continue
		}
		_, usage := pflag.UnquoteUsage(flag)
		kind, written := typeInFile(field.Type()), flag.DefValue
		if flag.Value.Type() == "duration" {
			kind = "duration"
		}
		if field.Kind() == reflect.Map {
			written = mapInFile(written)
		}
		item := fmt.Sprintf("- `%s` (%s, `--%s`): %s.", prefix+name, kind, flag.Name,
			strings.ReplaceAll(strings.TrimSuffix(usage, "."), "*", `\*`))
		if written != "" {
			item += " Default: `" + written + "`."
		}
		page.WriteString(documentstest.Item(item))
	}
}

// mapInFile returns what YAML writes for a flag's value with entries such as a=1,b=2.
func mapInFile(value string) string {
	value = strings.Trim(value, "[]")
	if value == "" {
		return ""
	}
	entries := strings.Split(value, ",")
	for i, entry := range entries {
		key, text, _ := strings.Cut(entry, "=")
		entries[i] = fmt.Sprintf("%q: %s", key, text)
	}
	return "{" + strings.Join(entries, ", ") + "}"
}

// flagOf returns the flag that a field sets.
func flagOf(t *testing.T, c *Configuration, field reflect.Value, name string) *pflag.Flag {
	t.Helper()
	switch field.Kind() {
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
		if text := field.Elem(); text.Kind() == reflect.String {
			text.SetString("text") // some fields take "" for none
		}
	case reflect.Map:
		field.Set(reflect.MakeMap(field.Type()))
		field.SetMapIndex(reflect.ValueOf("text"), reflect.Zero(field.Type().Elem()))
	default:
		field.Set(reflect.MakeSlice(field.Type(), 0, 0))
	}
	defer field.SetZero()
	var set []string
	for flag, value := range c.values() {
		if value != nil {
			set = append(set, flag)
		}
	}
	if len(set) != 1 {
		t.Fatalf("the field %s sets %d flags (%v), not one", name, len(set), set)
	}
	flag := NewCommand(nil).Flags().Lookup(set[0])
	if flag == nil {
		t.Fatalf("the field %s sets --%s, which kubecri does not have", name, set[0])
	}
	return flag
}

// typeInFile returns what YAML calls values of a type.
func typeInFile(of reflect.Type) string {
	switch of.Kind() {
	case reflect.Pointer:
		return typeInFile(of.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "list of " + typeInFile(of.Elem()) + "s"
	case reflect.Map:
		return "map of " + typeInFile(of.Elem()) + "s"
	case reflect.Struct:
		return "object"
	default:
		return "number"
	}
}
