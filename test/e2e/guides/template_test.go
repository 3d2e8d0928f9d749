// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/pages"
)

// template is the page of the plugin to copy. pkg/pluginload builds the copy in each way that it
// has; here it goes the whole way once.
const template = "plugins/template/README.md"

func TestAPluginGoesFromTheTemplateToItsFirstPodAsItsPageSays(t *testing.T) {
	ctx, r, must := begin(t)
	// A checkout with what the page uses of it.
	work := filepath.Join(dir, "template")
	must(os.CopyFS(filepath.Join(work, "plugins", "template"), os.DirFS(filepath.Join(root, "plugins", "template"))))
	must(os.Symlink(filepath.Join(root, "pkg"), filepath.Join(work, "pkg")))
	must(node.Begin(ctx))
	began := time.Now()

	copied := filepath.Join(work, "plugins", "gizmo")
	build := exec.CommandContext(ctx, "sh", "-euxc", blockOf(t, "plugins/gizmo\n")+blockOf(t, "go build"))
	build.Dir, build.Env = work, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=1")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	onNode := func(script string) string {
		t.Helper()
		printed, err := node.Run(ctx, "/bin/sh", "-ec", "cd "+copied+"\nPATH="+filepath.Join(root, "_output")+
			":/usr/sbin:/usr/bin:/sbin:/bin\n"+script)
		t.Logf("%s\n%s", script, printed)
		must(err)
		return printed
	}
	onNode(blockOf(t, "kubecri plugin check"))
	t.Cleanup(func() {
		if _, err := node.Run(context.WithoutCancel(ctx), "/bin/rm", "-rf", "/dev/widgets"); err != nil {
			t.Error(err)
		}
	})
	onNode(blockOf(t, "mknod"))
	onNode(blockOf(t, "kubecri plugin test"))

	// Both programs start with the plugin's files in their directories.
	devices, schedulers := filepath.Join(work, "devices"), filepath.Join(work, "schedulers")
	onNode(strings.NewReplacer("/usr/local/KubeExt/devices", devices, "/schedulerplugins", schedulers).Replace(
		blockOf(t, "install -D")))
	r.replaceScheduler("--devschedpath=" + schedulers)
	r.do("kubecri enrol --schedulers-replaced --cridevices=" + devices)
	_, err := shared.Client.AwaitNode(ctx, node.Name, "to have widgets", func(now *corev1.Node) bool {
		widgets := now.Status.Allocatable["example.com/widget"]
		return widgets.Value() == 2
	})
	must(err)

	pod := filepath.Join(copied, "pod.yaml")
	manifest, err := os.ReadFile(pod)
	must(err)
	own := strings.Replace(string(manifest), "image: busybox", "image: "+image.Busybox, 1)
	must(os.WriteFile(pod, []byte(own), 0o644))
	const want = "/dev/widgets/b0/w0,/dev/widgets/b0/w1\n"
	_, printed, _ := strings.Cut(r.do("set -e; cd "+copied+"\n"+blockOf(t, "kubectl logs")), "condition met\n")
	pages.EndWalk(t, "a copy of the template has run its first pod", began)
	if !strings.HasPrefix(printed, want) || strings.Count(printed, "\nc") != 2 {
		t.Errorf("the pod prints\n%swant two devices, and first\n%s", printed, want)
	}
	r.do("kubectl delete --now pod two-widgets")
	r.do("kubecri leave")
}

// blockOf returns the commands of the page that have a text, which one block alone has.
func blockOf(t *testing.T, text string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(template)))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, part := range strings.Split(string(page), "\n```sh\n")[1:] {
		if block, _, _ := strings.Cut(part, "```\n"); strings.Contains(block, text) {
			found = append(found, block)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks of commands with %q", template, len(found), text)
	}
	return found[0]
}
