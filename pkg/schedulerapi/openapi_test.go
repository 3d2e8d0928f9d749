// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package schedulerapi

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the document that the types make into openapi.json")

// operation is what can be done with a path.
type operation struct {
	path, method, summary string
	parameters            []string
	in, out               any // nil for no body, and for any object
}

// operations are all that the API has.
var operations = []operation{
	{NodesPath, "get", "Nodes with their devices, who holds them, and how they are.",
		[]string{NameParameter, LimitParameter, ContinueParameter}, nil, NodeList{}},
	{PodsPath, "get", "Pods that hold devices or wait for some, and why one that is named waits on each node.",
		[]string{NamespaceParameter, NameParameter, NodeParameter, LimitParameter, ContinueParameter}, nil, PodList{}},
	{ServerPath, "get", "The scheduler that answers.", nil, nil, Server{}},
	{OpenAPIPath, "get", "This document.", nil, nil, nil},
	{WhyPath, "post", "Why a pod waits, and what would let it run.", nil, WhyRequest{}, Why{}},
	{FitPath, "post", "Where pods would go now.", nil, FitRequest{}, Placements{}},
	{WhatIfPath, "post", "Where pods would go after changes.", nil, WhatIfRequest{}, Placements{}},
}

// parameters says what each parameter means.
var parameters = map[string]string{
	NameParameter:      "The one object of that name. A pod needs a namespace as well.",
	NamespaceParameter: "Only pods of this namespace.",
	NodeParameter:      "Only pods that hold devices of this node.",
	LimitParameter:     "How many items there may be, from 1 to 500.",
	ContinueParameter:  "What the answer before had in its field continue.",
}

// object is an object in JSON.
type object = map[string]any

// The page of the API has a row for each path, with its method and its parameters.
func TestThePageHasEachPathWithItsParameters(t *testing.T) {
	const page = "../../docs/reference/scheduler-api.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{} // the parameters, by method and path
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			rows[strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[3])
		}
	}
	for _, o := range operations {
		row := strings.ToUpper(o.method) + " " + strings.TrimPrefix(o.path, Prefix)
		var want []string
		for _, parameter := range o.parameters {
			want = append(want, "`"+parameter+"`")
		}
		got, found := rows[row]
		names := strings.Split(got, ", ")
		slices.Sort(want)
		slices.Sort(names)
		if !found || strings.Join(names, ", ") != strings.Join(want, ", ") {
			t.Errorf("%s has %q for %s, want the parameters %q", page, got, row, want)
		}
	}
}

// The document is the types': a change of a type that is not in the document fails here.
func TestTheDocumentDescribesTheTypes(t *testing.T) {
	want, err := json.MarshalIndent(document(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *rewrite {
		if err := os.WriteFile("openapi.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(want), OpenAPI()); diff != "" {
		t.Errorf("go test ./pkg/schedulerapi -rewrite takes it over (-types +document):\n%s", diff)
	}
}

func document(t *testing.T) object {
	d := &describer{T: t, comments: readComments(t), schemas: object{}}
	paths := object{}
	for _, o := range operations {
		answer := object{"description": "OK", "content": jsonOf(d.body(o.out))}
		described := object{"summary": o.summary, "responses": object{
			"200": answer,
			"default": object{
				"description": "A metav1.Status that says why not.", "content": jsonOf(object{"type": "object"}),
			},
		}}
		if o.in != nil {
			described["requestBody"] = object{"required": true, "content": jsonOf(d.body(o.in))}
		}
		for _, name := range o.parameters {
			kind := "string"
			if name == LimitParameter {
				kind = "integer"
			}
			list, _ := described["parameters"].([]object)
			described["parameters"] = append(list, object{
				"name": name, "in": "query", "description": parameters[name], "schema": object{"type": kind},
			})
		}
		paths[o.path] = object{o.method: described}
	}
	return object{
		"openapi": "3.0.3",
		"info": object{
			"title": "KubeDevice scheduler", "version": "v1alpha1",
			"description": "What the scheduler knows about devices. Quantities are in base units.",
		},
		"paths":      paths,
		"components": object{"schemas": d.schemas},
	}
}

func jsonOf(schema object) object { return object{"application/json": object{"schema": schema}} }

// describer makes schemas of types.
type describer struct {
	*testing.T
	comments map[string]string // of types, and of fields as Type.Field
	schemas  object
}

func (d *describer) body(example any) object {
	if example == nil {
		return object{"type": "object"}
	}
	return d.schema(reflect.TypeOf(example))
}

// schema returns the schema of a type. A struct's is put with the others, and referred to.
func (d *describer) schema(of reflect.Type) object {
	switch kind := of.Kind(); {
	case of == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case strings.HasPrefix(of.PkgPath(), "k8s.io/api/"):
		return object{"type": "object", "title": "the API server's " + of.Name()}
	case kind == reflect.Pointer:
		return d.schema(of.Elem())
	case kind == reflect.Interface:
		return object{} // any value
	case kind == reflect.String:
		return object{"type": "string"}
	case kind == reflect.Bool:
		return object{"type": "boolean"}
	case kind == reflect.Int64, kind == reflect.Int, kind == reflect.Int32:
		return object{"type": "integer", "format": "int64"}
	case kind == reflect.Float64:
		return object{"type": "number", "format": "double"}
	case kind == reflect.Slice:
		return object{"type": "array", "items": d.schema(of.Elem())}
	case kind == reflect.Map && of.Key().Kind() == reflect.String:
		return object{"type": "object", "additionalProperties": d.schema(of.Elem())}
	case kind != reflect.Struct:
		d.Fatalf("%v has no schema", of)
	}
	if _, done := d.schemas[of.Name()]; !done {
		d.schemas[of.Name()] = nil // it may refer to itself
		d.schemas[of.Name()] = d.structure(of)
	}
	return object{"$ref": "#/components/schemas/" + of.Name()}
}

func (d *describer) structure(of reflect.Type) object {
	properties, required := object{}, []string{}
	for i := range of.NumField() {
		field := of.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			embedded := d.structure(field.Type)
			maps.Copy(properties, embedded["properties"].(object))
			required = append(required, embedded["required"].([]string)...)
			continue
		}
		if name == "" {
			d.Fatalf("%v.%s has no name in JSON", of, field.Name)
		}
		schema := d.schema(field.Type)
		if comment := d.comments[of.Name()+"."+field.Name]; comment != "" {
			if schema["$ref"] != nil {
				schema = object{"allOf": []object{schema}} // siblings of a reference are not read
			}
			schema["description"] = comment
		}
		properties[name] = schema
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	slices.Sort(required)
	return object{
		"type": "object", "description": d.comments[of.Name()], "properties": properties, "required": required,
	}
}

// readComments returns the comments of the package's types and of their fields, in one line each.
func readComments(t *testing.T) map[string]string {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			declared, ok := node.(*ast.GenDecl)
			if !ok || declared.Tok != token.TYPE {
				return true
			}
			for _, spec := range declared.Specs {
				named := spec.(*ast.TypeSpec)
				comments[named.Name.Name] = line(declared.Doc)
				if structure, ok := named.Type.(*ast.StructType); ok {
					for _, field := range structure.Fields.List {
						for _, of := range field.Names {
							comments[named.Name.Name+"."+of.Name] = line(field.Doc)
						}
					}
				}
			}
			return false
		})
	}
	return comments
}

func line(comment *ast.CommentGroup) string {
	return strings.Join(strings.Fields(comment.Text()), " ")
}
