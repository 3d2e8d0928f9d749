// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// typeLink is a link from the name of a type, with its package, to the Go file that declares it.
var typeLink = regexp.MustCompile("\\[`(\\w+)\\.(\\w+)`\\]\\(([^)#\\s]+\\.go)\\)")

// leastTypes is how many types the story of one pod names at least: fewer are a broken pattern.
const leastTypes = 30

func TestTypesInDocumentsAreDeclaredInTheFilesThatTheyLinkTo(t *testing.T) {
	checked := map[string]int{}
	for name, text := range documents(t) {
		for _, match := range typeLink.FindAllStringSubmatch(text, -1) {
			if match[2] == "go" { // the name of a file
				continue
			}
			checked[filepath.Base(name)]++
			source, err := os.ReadFile(filepath.Join(filepath.Dir(name), match[3]))
			if err != nil {
				t.Errorf("%s: read the file of %s.%s: %v", name, match[1], match[2], err)
			} else if !declares(t, string(source), match[1], match[2]) {
				t.Errorf("%s links %s.%s to %s, which does not declare it: name the file that does",
					name, match[1], match[2], match[3])
			}
		}
	}
	if found := checked["one-pod.md"]; found < leastTypes {
		t.Errorf("docs/contributing/one-pod.md has %d types with a link to their file, and should have %d",
			found, leastTypes)
	}
}

// declares reports whether the source of a Go file is of the package and declares the type.
func declares(t *testing.T, source, packageName, typeName string) bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	declared := false
	for _, declaration := range file.Decls {
		if group, ok := declaration.(*ast.GenDecl); ok {
			for _, spec := range group.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok && spec.Name.Name == typeName {
					declared = true
				}
			}
		}
	}
	return declared && file.Name.Name == packageName
}

func TestATypeIsDeclaredInItsPackageAlone(t *testing.T) {
	source := strings.Join([]string{
		"package plugins", "type Source interface{}", "type (", "\tClaim struct{}", ")", "func Manager() {}",
	}, "\n")
	got := map[string]bool{}
	for _, name := range []string{"plugins.Source", "plugins.Claim", "plugins.Manager", "grants.Source"} {
		packageName, typeName, _ := strings.Cut(name, ".")
		got[name] = declares(t, source, packageName, typeName)
	}
	want := map[string]bool{
		"plugins.Source": true, "plugins.Claim": true, "plugins.Manager": false, "grants.Source": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
