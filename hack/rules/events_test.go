// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// eventReason is the form of the reason of an event.
var eventReason = regexp.MustCompile(`^[A-Z][a-z]+(?:[A-Z][a-z]+)+$`)

// reasonArgument is the place of the reason among the arguments of Eventf.
const reasonArgument = 3

// documentedReasons is what a row of the reference begins with.
var documentedReasons = regexp.MustCompile("(?m)^\\| ((?:`[A-Za-z]+`(?:, )?)+) \\|")

func TestEventsHaveALineInTheReference(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference", "events.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{"FailedScheduling": true} // upstream's
	for _, s := range sources(t) {
		if s.test() || !within(s.directory(), "pkg/node") && !within(s.directory(), "pkg/scheduler") {
			continue
		}
		for _, reason := range eventReasons(s.file) {
			found[reason] = true
			if !strings.Contains(string(page), "`"+reason+"`") {
				t.Errorf("docs/reference/events.md lacks the event %s of %s", reason, s.path)
			}
		}
	}
	if len(found) < 20 {
		t.Errorf("%d reasons of events were found: this test looks for the wrong names", len(found))
	}
	for _, row := range documentedReasons.FindAllStringSubmatch(string(page), -1) {
		for reason := range strings.SplitSeq(row[1], ", ") {
			if reason = strings.Trim(reason, "`"); !found[reason] {
				t.Errorf("docs/reference/events.md has %s, and there is no such event", reason)
			}
		}
	}
}

// eventReasons returns the constants whose names begin with reason, and the literals that Eventf
// gets as one.
func eventReasons(file *ast.File) []string {
	var reasons []string
	add := func(e ast.Expr) {
		if text, ok := e.(*ast.BasicLit); ok && text.Kind == token.STRING {
			if reason, err := strconv.Unquote(text.Value); err == nil && eventReason.MatchString(reason) {
				reasons = append(reasons, reason)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if strings.HasPrefix(name.Name, "reason") && i < len(n.Values) {
					add(n.Values[i])
				}
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Eventf" && len(n.Args) > reasonArgument {
				add(n.Args[reasonArgument])
			}
		}
		return true
	})
	return reasons
}
