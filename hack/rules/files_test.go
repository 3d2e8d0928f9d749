// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxBack is how many references between the files of a package may point back, see backArrows.
const maxBack = 5

// TestFilesOfAPackagePointOneWay holds that the files of each package have an order in which nearly
// all references point from a later file to an earlier one: each file can be read with those before
// it alone. With -v it prints the number of each package that has any others.
func TestFilesOfAPackagePointOneWay(t *testing.T) {
	for _, p := range loadPackages(t, "./pkg/...") {
		back := backArrows(p.references)
		if len(back) > 0 {
			t.Logf("%s: %d", p.directory, len(back))
		}
		if len(back) > maxBack {
			t.Errorf("%s: in the best order of its files, %d references point from a file to a later one, and at "+
				"most %d may:\n%smove what the earlier file needs into a file before both",
				p.directory, len(back), maxBack, p.describe(back))
		}
	}
}

// arrow says that one file of a package refers to what another one declares: a function, method,
// type, field, variable or constant. A method refers to the type of its receiver, so a type whose
// file needs its methods in another file makes a cycle.
type arrow struct{ from, to string }

// references are the arrows of a package, each with the names that it stands for.
type references map[arrow]map[string]bool

// loaded is a package of the repository without its tests.
type loaded struct {
	directory  string
	references references
	functions  []string // fields of structs that hold functions, see functionFieldsOf
}

func (p loaded) describe(back []arrow) string {
	var text strings.Builder
	for _, a := range back {
		names := slices.Sorted(maps.Keys(p.references[a]))
		fmt.Fprintf(&text, "\t%s -> %s: %s\n", a.from, a.to, strings.Join(names[:min(len(names), 6)], ", "))
	}
	return text.String()
}

// loadPackages reads the packages that the pattern matches, from the repository's root, and what
// their files refer to of each other. Imported packages come from the compiler's cache.
func loadPackages(t *testing.T, pattern string) []loaded {
	t.Helper()
	const fields = "{{.ImportPath}}\t{{.Export}}\t{{.DepOnly}}\t{{.Dir}}\t" +
		`{{join .GoFiles " "}} {{join .CgoFiles " "}}`
	list := exec.Command("go", "list", "-export", "-deps", "-f", fields, pattern)
	list.Dir = root
	var failed bytes.Buffer
	list.Stderr = &failed
	out, err := list.Output()
	if err != nil {
		t.Fatalf("list the packages of %s: %v\n%s", pattern, err, failed.String())
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	exports, found := map[string]string{}, []loaded{}
	lookup := func(name string) (io.ReadCloser, error) { return os.Open(exports[name]) }
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range lines {
		fields := strings.Split(line, "\t")
		exports[fields[0]] = fields[1]
	}
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", lookup)
	for _, line := range lines {
		fields := strings.Split(line, "\t")
		if fields[2] == "true" {
			continue
		}
		directory, err := filepath.Rel(absolute, fields[3])
		if err != nil {
			t.Fatal(err)
		}
		var files []*ast.File
		for _, name := range strings.Fields(fields[4]) {
			file, err := parser.ParseFile(set, filepath.Join(fields[3], name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		references, functions := inspect(t, set, imports, fields[0], files)
		found = append(found, loaded{filepath.ToSlash(directory), references, functions})
	}
	return found
}

// inspect returns what the files of one package refer to of each other, and the fields of its
// structs that are functions.
func inspect(
	t *testing.T, set *token.FileSet, imports types.Importer, name string, files []*ast.File,
) (references, []string) {
	t.Helper()
	info := &types.Info{
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	config := types.Config{Importer: imports, FakeImportC: true}
	checked, err := config.Check(name, set, files, info)
	if err != nil {
		t.Fatalf("check the types of %s: %v", name, err)
	}
	found := references{}
	fileOf := func(at token.Pos) string { return path.Base(filepath.ToSlash(set.Position(at).Filename)) }
	for identifier, object := range info.Uses {
		if object.Pkg() != checked || !isShared(checked, object) {
			continue
		}
		a := arrow{fileOf(identifier.Pos()), fileOf(object.Pos())}
		if a.from == a.to {
			continue
		}
		if found[a] == nil {
			found[a] = map[string]bool{}
		}
		found[a][object.Name()] = true
	}
	return found, functionFieldsOf(checked, slices.Collect(maps.Values(info.Defs)))
}

// isShared reports whether other files of the package can refer to an object.
func isShared(in *types.Package, object types.Object) bool {
	switch object := object.(type) {
	case *types.Var:
		return object.IsField() || object.Parent() == in.Scope()
	case *types.Func:
		return true
	default:
		return object.Parent() == in.Scope()
	}
}

// backArrows returns the fewest arrows that it finds without which the others have no cycle (a
// minimal feedback arc set, approximated). It tries orders of the files, in which an arrow points
// back when its file comes before the one that it refers to, and moves one file after the other to
// where the fewest arrows do.
func backArrows(all references) []arrow {
	files := map[string]bool{}
	for a := range all {
		files[a.from], files[a.to] = true, true
	}
	order := slices.Sorted(maps.Keys(files))
	var best []arrow
	for start := range max(1, len(order)) {
		rotated := slices.Concat(order[min(start, len(order)):], order[:min(start, len(order))])
		if back := pointBack(all, improve(all, rotated)); start == 0 || len(back) < len(best) {
			best = back
		}
	}
	return best
}

// improve moves one file after the other to the place where the fewest arrows point back, as long
// as that helps.
func improve(all references, order []string) []string {
	for better := true; better; {
		better = false
		for _, file := range slices.Clone(order) {
			at := slices.Index(order, file)
			others := slices.Delete(slices.Clone(order), at, at+1)
			cost, least, place := 0, 0, 0 // compared with the first place
			for i, other := range others {
				if _, refers := all[arrow{file, other}]; refers {
					cost--
				}
				if _, referred := all[arrow{other, file}]; referred {
					cost++
				}
				if cost < least || cost == least && i+1 == at {
					least, place = cost, i+1
				}
			}
			moved := slices.Insert(others, place, file)
			if len(pointBack(all, moved)) < len(pointBack(all, order)) {
				order, better = moved, true
			}
		}
	}
	return order
}

// pointBack returns the arrows that point from a file to a later one, in the order of the files.
func pointBack(all references, order []string) []arrow {
	position := map[string]int{}
	for i, file := range order {
		position[file] = i
	}
	var back []arrow
	for a := range all {
		if position[a.from] < position[a.to] {
			back = append(back, a)
		}
	}
	slices.SortFunc(back, func(a, b arrow) int {
		return strings.Compare(a.from+" "+a.to, b.from+" "+b.to)
	})
	return back
}

func TestBackArrowsAreThoseOfTheBestOrder(t *testing.T) {
	for name, test := range map[string]struct {
		arrows string // each "from to"
		want   int
	}{
		"no file":                           {"", 0},
		"a chain":                           {"a b,b c,a c", 0},
		"two files that need each other":    {"a b,b a", 1},
		"a cycle of three":                  {"a b,b c,c a", 1},
		"two cycles that share an arrow":    {"a b,b c,c a,b d,d a", 1},
		"two cycles that share nothing":     {"a b,b a,c d,d c,a c", 2},
		"three files that all need another": {"a b,b a,b c,c b,a c,c a", 3},
		"a file in the middle of a cycle":   {"a x,b x,c x,x d,d c", 1},
	} {
		t.Run(name, func(t *testing.T) {
			all := references{}
			for _, text := range strings.FieldsFunc(test.arrows, func(r rune) bool { return r == ',' }) {
				from, to, _ := strings.Cut(text, " ")
				all[arrow{from, to}] = map[string]bool{}
			}
			if got := backArrows(all); len(got) != test.want {
				t.Errorf("%d arrows point back: %v, want %d", len(got), got, test.want)
			}
		})
	}
}
