// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
	"github.com/kubedevice/kubedevice/test/pages"
)

// move is the page by which a device plugin's node moves over, with blocks for each step.
const move = "docs/deploy/from-device-plugins.md"

// The DaemonSets are those that NVIDIA's manifest, and ours, make: but another program is in them,
// as there is no GPU. test/enrolments moves the real one.
func TestANodeMovesOverFromADevicePluginAndBackAsTheGuideSays(t *testing.T) {
	ctx, r, must := begin(t)
	blocks := blocksOf(t, move)
	if len(blocks) != 4 {
		t.Fatalf("%s has %d blocks of commands to run, and 4 are known", move, len(blocks))
	}
	work := filepath.Join(dir, "move")
	must(os.Mkdir(work, 0o755))
	vendorsManifest := prepareDaemonSet(t, work)
	must(node.Begin(ctx))
	files, err := node.Files()
	must(err)

	// The cluster before: the schedulers are replaced, and the plugin is at the kubelet.
	r.replaceScheduler()
	t.Cleanup(func() {
		after := reader{t, context.WithoutCancel(ctx)}
		after.do("kubectl delete --ignore-not-found --now pod pair")
		after.do("kubectl delete --ignore-not-found -k " + filepath.Join(work, "deploy/device-plugins/enrolled/nvidia"))
		after.do("kubectl delete --ignore-not-found -f " + vendorsManifest)
	})
	r.do("kubectl apply -f " + vendorsManifest)
	served := func(now *corev1.Node) bool {
		gpus := now.Status.Allocatable[observe.Resource]
		return gpus.Value() == 8
	}
	_, err = shared.Client.AwaitNode(ctx, node.Name, "to have GPUs of the plugin at the kubelet", served)
	must(err)
	holder := clustertest.RunPod(ctx, t, shared.Client, clustertest.IdlePod(clustertest.Namespace(t, shared.Client),
		"holder", map[corev1.ResourceName]int64{observe.Resource: 1}))

	began := time.Now()
	printed := map[string]string{}
	for _, block := range blocks {
		for line := range strings.Lines(block.Script) {
			command := strings.ReplaceAll(strings.TrimSpace(line), "NODE", node.Name)
			switch {
			case strings.HasPrefix(command, "kubecri "):
				if strings.HasPrefix(command, "kubecri enrol ") {
					command += " --cridevices=" + filepath.Join(work, "none") // no plugin file
				}
				r.do(command)
				continue
			case strings.HasPrefix(command, "kubectl device nodes "):
				_, err := shared.Client.AwaitNode(ctx, node.Name, "to publish GPUs", publishes)
				must(err)
				clustertest.Await(ctx, t, "the plugin's own DaemonSet to leave the node", func() bool {
					const labels = "name=nvidia-device-plugin-ds,nodes!=enrolled"
					return r.do("kubectl -n kube-system get pods --output=name -l "+labels) == ""
				})
			}
			printed[command] = r.do("cd " + work + " && " + command)
		}
	}
	pages.EndWalk(t, "the node has moved over and back, with a pod between,", began)

	gpu := regexp.MustCompile(`GPU-\d`)
	for command, want := range map[string]int{"kubectl device nodes " + node.Name: 8, "kubectl device pods pair": 2} {
		if gpus := gpu.FindAllString(printed[command], -1); len(gpus) != want {
			t.Errorf("%s prints the GPUs %q, want %d", command, gpus, want)
		}
	}
	now := clustertest.AwaitPod(ctx, t, shared.Client, holder, "to be ready still", kube.Ready)
	if diff := cmp.Diff(holder.Status.ContainerStatuses, now.Status.ContainerStatuses); diff != "" {
		t.Errorf("the container that held a GPU noticed something (-before +after):\n%s", diff)
	}
	left, err := node.Files()
	must(err)
	if diff := cmp.Diff(files, left); diff != "" {
		t.Errorf("what is left (-before +after):\n%s", diff)
	}
}

// blocksOf returns the blocks of a page that are run here.
func blocksOf(t *testing.T, page string) (blocks []pages.Block) {
	t.Helper()
	all, err := pages.MarkedFor(root, "test/e2e/guides")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range all {
		if block.Page == page {
			blocks = append(blocks, block)
		}
	}
	return blocks
}

// prepareDaemonSet makes a directory one of the checkout's, as far as the page uses it, with
// NVIDIA's manifest in place of its address, and a program of the test in it. It returns the path
// of that manifest.
func prepareDaemonSet(t *testing.T, work string) string {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	plugins := filepath.Join(work, "deploy", "device-plugins")
	must(os.CopyFS(plugins, os.DirFS(filepath.Join(root, "deploy", "device-plugins"))))
	examples := filepath.Join(work, "deploy", "examples")
	must(os.Mkdir(examples, 0o755))
	pair, err := os.ReadFile(filepath.Join(root, "deploy", "examples", "pair.yaml"))
	must(err)
	own := strings.NewReplacer("image: busybox", "image: "+image.Busybox, "\nspec:\n",
		"\nspec:\n  terminationGracePeriodSeconds: 1\n")
	must(os.WriteFile(filepath.Join(examples, "pair.yaml"), []byte(own.Replace(string(pair))), 0o644))

	kustomization := filepath.Join(plugins, "nvidia", "kustomization.yaml")
	content, err := os.ReadFile(kustomization)
	must(err)
	address := regexp.MustCompile(`https://raw\.githubusercontent\.com/NVIDIA/k8s-device-plugin/(v[0-9.]+)/(\S+)`).
		FindStringSubmatch(string(content))
	if address == nil {
		t.Fatalf("%s names no manifest of NVIDIA's", kustomization)
	}
	must(os.WriteFile(kustomization, []byte(strings.Replace(string(content), address[0], "vendor.yaml", 1)), 0o644))
	manifest := filepath.Join(plugins, "nvidia", "vendor.yaml")
	must(os.WriteFile(manifest, withAProgramOfTheTest(t, work, vendorsFile(t, address[1], address[2])), 0o644))
	return manifest
}

// vendorsFile returns a file of the module that NVIDIA's plugin is built from.
func vendorsFile(t *testing.T, version, path string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json",
		"github.com/NVIDIA/k8s-device-plugin@"+version)
	command.Dir = filepath.Join(root, "test", "third_party", "device-plugins")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(module.Dir, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// restarting is a script that starts a plugin again whenever the kubelet does, as NVIDIA's does by
// itself. Its arguments are the plugin's command.
const restarting = `cd /var/lib/kubelet/device-plugins
trap 'kill $plugin; exit' TERM
while :; do
	"$@" & plugin=$!
	seen=$(stat -c %i,%Z kubelet.sock)
	while [ "$(stat -c %i,%Z kubelet.sock)" = "$seen" ] && kill -0 $plugin; do sleep 1; done
	kill $plugin
	wait $plugin
	sleep 1
done`

// withAProgramOfTheTest puts a plugin of eight made-up GPUs into the DaemonSet of a manifest.
func withAProgramOfTheTest(t *testing.T, work string, manifest []byte) []byte {
	t.Helper()
	daemonSet := &appsv1.DaemonSet{}
	if err := yaml.UnmarshalStrict(manifest, daemonSet); err != nil {
		t.Fatal(err)
	}
	program, list := filepath.Join(work, "plugin"), filepath.Join(work, "gpus.json")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../numa/testdata/plugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, said)
	}
	var gpus []*pluginapi.Device
	for i := range 8 {
		gpus = append(gpus, &pluginapi.Device{ID: fmt.Sprint("GPU-", i), Health: pluginapi.Healthy})
	}
	content, err := json.Marshal(gpus)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, content, 0o644); err != nil {
		t.Fatal(err)
	}
	pod := &daemonSet.Spec.Template.Spec
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "test", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: work},
	}})
	container := &pod.Containers[0]
	container.Image = image.Busybox
	container.Command = []string{"sh", "-c", restarting, "sh", program, "-resource=" + string(observe.Resource),
		"-devices=" + list, "-journal=/dev/null"}
	container.VolumeMounts = append(container.VolumeMounts,
		corev1.VolumeMount{Name: "test", MountPath: work, ReadOnly: true})
	content, err = yaml.Marshal(daemonSet)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
