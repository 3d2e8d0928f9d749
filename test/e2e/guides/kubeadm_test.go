// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/observe"
)

// reader does what a guide says.
type reader struct {
	*testing.T
	ctx context.Context
}

// begin begins a test that does what a guide says. An error that must gets ends it.
func begin(t *testing.T) (ctx context.Context, r reader, must func(error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx, reader{t, ctx}, func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// try runs a command of the guide, and returns what it prints: kubecri on the node, all others on
// the machine of an administrator.
func (r reader) try(command string) (string, error) {
	r.Helper()
	program, rest, _ := strings.Cut(command, " ")
	var printed bytes.Buffer
	var err error
	if program == "kubecri" {
		args := strings.Fields(rest)
		kubecri := node.Kubecri(args[0], append(args[1:], "--output=text")...)
		kubecri.Stdout, kubecri.Stderr = &printed, &printed
		err = node.Sandbox().Run(r.ctx, kubecri)
	} else {
		kubectl := shared.KubectlCommand(r.ctx)
		shell := exec.CommandContext(r.ctx, "sh", "-c", command)
		shell.Env = append(kubectl.Env, "PATH="+filepath.Dir(kubectl.Path)+":"+filepath.Join(root, "_output")+
			":/usr/bin:/bin")
		shell.Dir, shell.Stdout, shell.Stderr = dir, &printed, &printed
		err = shell.Run()
	}
	r.Logf("$ %s\n%s", command, &printed)
	return printed.String(), err
}

// do is try, and fails the test if the command does.
func (r reader) do(command string) string {
	r.Helper()
	printed, err := r.try(command)
	if err != nil {
		r.Fatalf("%s: %v\n%s", command, err, printed)
	}
	return printed
}

// doAll does a section of a guide, and returns what each command prints.
func (r reader) doAll(of section) map[string]string {
	r.Helper()
	for name, content := range of.files {
		// No image can be pulled.
		content = strings.Replace(content, "image: debian", "image: "+image.Busybox, 1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			r.Fatal(err)
		}
	}
	printed := map[string]string{}
	for _, command := range of.commands {
		printed[command] = r.do(command)
	}
	return printed
}

// replaceScheduler does what comes before a page's own steps: the policies are there, and our
// scheduler, with further arguments, runs in the place of upstream's. All goes back when the test
// ends.
func (r reader) replaceScheduler(args ...string) {
	r.Helper()
	manifests := "-f " + filepath.Join(root, "deploy", "rbac") + " -f " + filepath.Join(root, "deploy", "policies")
	r.do("kubectl apply " + manifests)
	program := scheduler
	program.Args = append(slices.Clone(program.Args), args...)
	ours := shared.NewScheduler("kubedevice-scheduler", 10260, program)
	if err := errors.Join(shared.Scheduler.Terminate(r.ctx), ours.Start()); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		after := reader{r.T, context.WithoutCancel(r.ctx)}
		after.do("kubectl delete --ignore-not-found " + manifests)
		if err := errors.Join(ours.Terminate(after.ctx), shared.Scheduler.Start()); err != nil {
			r.Error(err)
		}
	})
}

// state is what the guide changes and takes back.
func (r reader) state() map[string]string {
	r.Helper()
	state, err := node.Files()
	if err != nil {
		r.Fatal(err)
	}
	for _, list := range []string{
		"validatingadmissionpolicies,validatingadmissionpolicybindings",
		"clusterroles,clusterrolebindings,roles,rolebindings,namespaces",
	} {
		state[list] = r.do("kubectl get --all-namespaces --output=name " + list)
	}
	now, err := node.API(r.ctx)
	if err != nil {
		r.Fatal(err)
	}
	state["labels"] = strings.Join(slices.Sorted(maps.Keys(now.Labels)), "\n")
	state["annotations"] = strings.Join(slices.Sorted(maps.Keys(now.Annotations)), "\n")
	return state
}

// publishes reports whether the scheduler may give devices of a node to pods.
func publishes(now *corev1.Node) bool {
	gpus := now.Status.Allocatable[observe.Resource]
	return now.Annotations[deviceinfo.Annotation] != "" && gpus.Value() == 8
}

// The node's kubelet runs as kubeadm sets it up. That kubeadm writes our scheduler's pod is another
// test, of kubeadm's own code: here the scheduler takes the place of upstream's without it.
func TestFromNothingToTheFirstDevicePodAndBackAsTheGuideSays(t *testing.T) {
	ctx, r, must := begin(t)
	must(node.Begin(ctx))
	bystander := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.IdlePod(clustertest.Namespace(t, shared.Client), "bystander", nil))
	guide := readGuide(t, "kubeadm.md", node.Name)
	before := r.state()

	r.do(guide["1. Policies and rights"].commands[0])
	if printed := r.do(guide["1. Policies and rights"].commands[1]); strings.Count(printed, "\nkubedevice-") != 5 {
		t.Errorf("policies:\n%s", printed)
	}
	ours := shared.NewScheduler("kubedevice-scheduler", 10260, scheduler)
	must(shared.Scheduler.Terminate(ctx))
	must(ours.Start())

	enrolling := guide["3. The nodes"]
	for _, command := range enrolling.commands {
		if command == "kubecri leave" {
			continue // on the way back
		}
		printed := r.do(command)
		switch {
		case strings.HasSuffix(command, "--schedulers-replaced"):
			if want := `node "` + node.Name + `": done`; !strings.HasSuffix(strings.TrimSpace(printed), want) {
				t.Errorf("the last line is not %s:\n%s", want, printed)
			}
			_, err := shared.Client.AwaitNode(ctx, node.Name, "to publish its devices", publishes)
			must(err)
		case strings.HasPrefix(command, "kubectl device nodes "):
			if gpus := regexp.MustCompile(`gpu-\d`).FindAllString(printed, -1); len(gpus) != 8 {
				t.Errorf("%d GPUs:\n%s", len(gpus), printed)
			}
		}
	}

	first := guide["4. The first device pod"]
	back := first.commands[len(first.commands)-1]
	first.commands = first.commands[:len(first.commands)-1]
	has := r.doAll(first)["kubectl device pods first"]
	if pair := regexp.MustCompile(`(?s)gpu-(0.*gpu-1|2.*gpu-3|4.*gpu-5|6.*gpu-7)\b`); !pair.MatchString(has) {
		t.Errorf("the pod has no pair of GPUs:\n%s", has)
	}
	if printed, err := r.try("kubecri leave"); err == nil || !strings.Contains(printed, "default/first") {
		t.Errorf("the node is left while a device pod runs (%v), or it is not named:\n%s", err, printed)
	}
	r.do(back)

	for _, command := range guide["And back to nothing"].commands {
		if strings.HasPrefix(command, "kubectl delete ") { // the scheduler has gone before
			must(ours.Terminate(ctx))
			must(shared.Scheduler.Start())
		}
		r.do(command)
	}
	if diff := cmp.Diff(before, r.state()); diff != "" {
		t.Errorf("what is left (-before +after):\n%s", diff)
	}
	clustertest.ExpectUntouched(ctx, t, shared.Client, bystander)
}
