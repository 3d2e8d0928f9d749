// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// kubeletFlags reads the names of the kubelet's flags, and whether each is a bool, off the source
// of the Kubernetes version that go.mod pins. Importing that package instead would bring a thousand
// packages of the kubelet into this module.
func kubeletFlags(t *testing.T) map[string]bool {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatalf("find the source of k8s.io/kubernetes: %v", err)
	}
	flags := map[string]bool{}
	sources := token.NewFileSet()
	for _, name := range []string{"options.go", "globalflags.go", "osflags_others.go"} {
		file, err := parser.ParseFile(sources, filepath.Join(strings.TrimSpace(string(dir)), "cmd/kubelet/app/options",
			name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) < 3 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !strings.HasSuffix(method.Sel.Name, "Var") {
				return true
			}
			if set, ok := method.X.(*ast.Ident); !ok || set.Name != "fs" {
				return true
			}
			literal, ok := call.Args[1].(*ast.BasicLit)
			if !ok {
				t.Errorf("%s: a flag whose name is no literal", sources.Position(call.Pos()))
				return true
			}
			flag, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			flags[flag] = method.Sel.Name == "BoolVar"
			return true
		})
	}
	if len(flags) < 100 {
		t.Fatalf("found %d flags of the kubelet only; has its source another shape now?", len(flags))
	}
	return flags
}

func TestEveryFlagOfTheKubeletIsAcceptedWithItsArity(t *testing.T) {
	ours := NewCommand(nil).Flags()
	for name, isBool := range kubeletFlags(t) {
		flag := ours.Lookup(name)
		if flag == nil {
			t.Errorf("--%s: the kubelet has it, kubecri does not", name)
			continue
		}
		if got := flag.NoOptDefVal != ""; got != isBool {
			t.Errorf("--%s: bool %v, the kubelet's %v", name, got, isBool)
		}
	}
}

func TestNoFlagIsIgnoredThatTheKubeletDoesNotHave(t *testing.T) {
	theirs := kubeletFlags(t)
	for _, known := range []string{
		"cloud-config",              // of kubelets before 1.31
		"container-runtime",         // of kubelets before 1.27
		"pod-infra-container-image", // of kubelets before 1.35
		"housekeeping-interval",     // of cAdvisor, which the kubelet links
	} {
		theirs[known] = false
	}
	NewCommand(nil).Flags().VisitAll(func(flag *pflag.Flag) {
		if _, isIgnored := flag.Value.(ignoredFlag); !isIgnored {
			return
		}
		if _, has := theirs[flag.Name]; !has {
			t.Errorf("--%s is ignored, but the kubelet has no such flag", flag.Name)
		}
		if !flag.Hidden {
			t.Errorf("--%s has no effect and stands in the help", flag.Name)
		}
	})
}

func TestTheKubeletIsNotLinkedIn(t *testing.T) {
	deps, err := exec.Command("go", "list", "-deps", "github.com/kubedevice/kubedevice/cmd/kubecri").Output()
	if err != nil {
		t.Fatalf("list what kubecri links: %v", err)
	}
	for _, dep := range strings.Fields(string(deps)) {
		if strings.HasPrefix(dep, "k8s.io/kubernetes/") ||
			strings.HasPrefix(dep, "github.com/kubedevice/kubedevice/pkg/scheduler") {
			t.Errorf("kubecri links %s", dep)
		}
	}
}
