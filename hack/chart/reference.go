// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// schema is a JSON Schema as far as the reference reads it.
type schema struct {
	Type                 any                `json:"type"`
	Description          string             `json:"description"`
	Enum                 []any              `json:"enum"`
	Properties           map[string]*schema `json:"properties"`
	AdditionalProperties any                `json:"additionalProperties"`
	Items                *schema            `json:"items"`
}

const referenceHead = `# Values of the chart

Generated from [` + "`values.schema.json`" + `](../../deploy/chart/values.schema.json) and
[` + "`values.yaml`" + `](../../deploy/chart/values.yaml) by ` + "`make chart`" + `.
Helm refuses values that are not here, and those of another form, before anything is changed.
[Install with Helm](../deploy/chart.md) has examples.

`

// width is that of a line of the reference.
const width = 120

// valuesReference returns the document of all values with their defaults.
func valuesReference(schemaText, defaultsText []byte) (string, error) {
	root := &schema{}
	if err := json.Unmarshal(schemaText, root); err != nil {
		return "", fmt.Errorf("values.schema.json: %w", err)
	}
	defaults := map[string]any{}
	if err := yaml.UnmarshalStrict(defaultsText, &defaults); err != nil {
		return "", fmt.Errorf("values.yaml: %w", err)
	}
	var out strings.Builder
	out.WriteString(referenceHead)
	describe(&out, "", root, defaults)
	return strings.TrimRight(out.String(), "\n") + "\n", nil
}

// describe writes the members of an object, each under its full name.
func describe(out *strings.Builder, prefix string, object *schema, defaults map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(object.Properties)) {
		member, path := object.Properties[name], prefix+name
		if path == "global" {
			continue
		}
		if prefix == "" {
			fmt.Fprintf(out, "## %s\n\n", name)
		}
		value, known := defaults[name]
		entry := fmt.Sprintf("- `%s`: %s", path, member.Description)
		nested := member.Type == "object" && len(member.Properties) > 0
		if known && !nested {
			entry += fmt.Sprintf(" Default: `%s`.", compact(value))
		}
		if !named(member.Description, member.Enum) {
			entry += fmt.Sprintf(" One of %s.", choices(member.Enum))
		}
		wrap(out, entry)
		switch {
		case nested:
			below, _ := value.(map[string]any)
			describe(out, path+".", member, below)
		case member.Items != nil && len(member.Items.Properties) > 0:
			describe(out, path+"[].", member.Items, nil)
		}
		if prefix == "" {
			out.WriteString("\n")
		}
	}
}

// named reports whether a description has all values.
func named(description string, values []any) bool {
	return !slices.ContainsFunc(values, func(value any) bool {
		return !strings.Contains(description, fmt.Sprintf("`%v`", value))
	})
}

// compact returns a value on one line.
func compact(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

func choices(values []any) string {
	var all []string
	for _, value := range values {
		all = append(all, fmt.Sprintf("`%v`", value))
	}
	return strings.Join(all, ", ")
}

// wrap writes an entry of a list in lines that are not too long.
func wrap(out *strings.Builder, entry string) {
	column := 0
	for _, word := range strings.Fields(entry) {
		switch {
		case column == 0:
		case column+1+len(word) > width:
			out.WriteString("\n  ")
			column = 2
		default:
			out.WriteString(" ")
			column++
		}
		out.WriteString(word)
		column += len(word)
	}
	out.WriteString("\n")
}
