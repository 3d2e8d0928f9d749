// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/demo"
	"github.com/kubedevice/kubedevice/test/kube"
)

var rewrite = flag.Bool("rewrite", false, "write what the commands print into the scripts of testdata")

// testScripts runs the scripts of testdata: one for each command of kubectl device, with all that
// it prints. In a script, "kubectl ..." has to end with exit status 0, and "exits N PROGRAM ..."
// with N. Both print what [normalize] makes of the program's output. $DEMO is the directory of the
// demo's pods, and $SCHEDULER the address of the scheduler's API.
func testScripts(t *testing.T, kept *cluster.Cluster) {
	arrange(t, kept.Client)
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{
		kept.Programs(), filepath.Dir(filepath.Dir(kept.Programs())), filepath.Join(root, "deploy", "krew"),
		os.Getenv("PATH"),
	}, string(os.PathListSeparator))
	deadline, _ := t.Deadline()
	testscript.RunT(oneByOne{t}, testscript.Params{
		Dir:                "testdata",
		UpdateScripts:      *rewrite,
		RequireUniqueNames: true,
		Deadline:           deadline,
		Setup: func(env *testscript.Env) error {
			env.Defer(func() { untaint(t, kept.Client) })
			for name, value := range map[string]string{
				"HOME": env.WorkDir, "KUBECONFIG": kept.Kubeconfig(), "PATH": path, "SCHEDULER": kept.SchedulerURL(),
				"DEMO": filepath.Join(root, "test", "demo", "pods"),
			} {
				env.Setenv(name, value)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"kubectl": func(script *testscript.TestScript, neg bool, args []string) {
				run(script, neg, 0, append([]string{"kubectl"}, args...))
			},
			"exits": func(script *testscript.TestScript, neg bool, args []string) {
				if len(args) < 2 {
					script.Fatalf("usage: exits STATUS PROGRAM [ARGUMENT...]")
				}
				status, err := strconv.Atoi(args[0])
				script.Check(err)
				run(script, neg, status, args[1:])
			},
		},
	})
}

// arrange creates the demo's pods once more, one after another, each on a certain node: in the
// demo, it is chance which of two equal nodes gets the first one.
func arrange(t *testing.T, client *kube.Client) {
	ctx := t.Context()
	removePods(t, client)
	var created []*corev1.Pod
	for _, place := range []struct{ pod, node string }{
		{"pair", "node-1"}, {"published", "node-1"}, {"shaped", "node-1"}, {"cpu-only", "node-1"},
		{"quad", "node-2"}, {"half-1", "node-2"}, {"half-2", "node-2"}, {"too-large", ""},
	} {
		pod, err := demo.Pod(place.pod)
		if err != nil {
			t.Fatal(err)
		}
		if place.node != "" {
			pod = clustertest.On(place.node, pod)
		}
		created = append(created, clustertest.CreatePod(ctx, t, client, pod))
	}
	for _, pod := range created {
		clustertest.AwaitPod(ctx, t, client, pod, "to be ready, or to wait", func(pod *corev1.Pod) bool {
			return kube.Ready(pod) || kube.Unschedulable(pod)
		})
	}
}

// removePods deletes the demo's pods.
func removePods(t *testing.T, client *kube.Client) {
	ctx := t.Context()
	there, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range there.Items {
		clustertest.DeletePod(ctx, t, client, &there.Items[i])
	}
}

// untaint removes the taints that a script has left because it failed: others would fail by them.
func untaint(t *testing.T, client *kube.Client) {
	ctx := t.Context()
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	none := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, deviceinfo.DeviceTaintsAnnotation)
	for _, node := range nodes.Items {
		if node.Annotations[deviceinfo.DeviceTaintsAnnotation] == "" {
			continue
		}
		_, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, none, metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
	}
}

// oneByOne runs scripts one after another: they use one cluster, and some change it for a moment.
type oneByOne struct{ *testing.T }

func (oneByOne) Parallel()     {}
func (oneByOne) Verbose() bool { return testing.Verbose() }

func (t oneByOne) Run(name string, script func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { script(oneByOne{t}) })
}

// run runs a program, which has to end with an exit status, and normalizes what it has printed.
func run(script *testscript.TestScript, neg bool, want int, command []string) {
	if neg {
		script.Fatalf("write \"exits STATUS\", in place of \"!\"")
	}
	err := script.Exec(command[0], command[1:]...)
	stdout, stderr := script.ReadFile("stdout"), script.ReadFile("stderr")
	fmt.Fprint(script.Stdout(), normalize(stdout))
	fmt.Fprint(script.Stderr(), normalize(stderr))
	status := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		status = exit.ExitCode()
	} else if err != nil {
		script.Fatalf("%v", err)
	}
	if status != want {
		script.Fatalf("exit status %d, want %d", status, want)
	}
}

// differences are what differs from run to run, and the word that stands for it in the scripts.
// The first group, if there is one, is what differs.
var differences = []struct {
	what *regexp.Regexp
	word string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z *`), "TIME"},
	{regexp.MustCompile(`kubedevice-report-([0-9TZ]+)`), "TIME"},
	{regexp.MustCompile(`(?:Granted|Bound|Waiting) +((?:[0-9]+[smh])+ *)`), "AGE"},
	{regexp.MustCompile(`v[0-9.]+\+kubedevice-v[0-9.]+ *`), "VERSION"},
	{regexp.MustCompile(`[0-9a-f]{64} *`), "FINGERPRINT"},
	{regexp.MustCompile(`(?m)^([0-9a-f]{16} +)`), "ID"},
}

// normalize replaces what differs from run to run. In tables, columns stay where they are.
func normalize(text string) string {
	for _, d := range differences {
		text = d.what.ReplaceAllStringFunc(text, func(found string) string {
			differs := found
			if groups := d.what.FindStringSubmatch(found); len(groups) > 1 {
				differs = groups[1]
			}
			word := d.word
			switch blanks := len(differs) - len(strings.TrimRight(differs, " ")); {
			case blanks > 1: // it is a cell of a table
				word = fmt.Sprintf("%-*s", len(differs), word)
			case blanks == 1:
				word += " "
			}
			return strings.Replace(found, differs, word, 1)
		})
	}
	return text
}
