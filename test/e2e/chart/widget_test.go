// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// widget is the resource of plugins/template, whose image a vendor would have made by make
// plugin-image.
const widget corev1.ResourceName = "example.com/widget"

// plugWidgetsIn gives each node what the plugin takes for widgets: one on a board, and two on
// another.
func plugWidgetsIn(t *testing.T) {
	t.Helper()
	const mknod = "mkdir -p /dev/widgets/b0 /dev/widgets/b1 && mknod -m 666 /dev/widgets/b0/w0 c 60 100 && " +
		"mknod -m 666 /dev/widgets/b1/w1 c 60 101 && mknod -m 666 /dev/widgets/b1/w2 c 60 102"
	for _, node := range shared.Nodes {
		if _, err := node.Run(t.Context(), "/bin/sh", "-c", mknod); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := node.Run(context.WithoutCancel(t.Context()), "/bin/rm", "-r", "/dev/widgets"); err != nil {
				t.Error(err)
			}
		})
	}
}

// withWidgets adds the plugin to values.
func (s *story) withWidgets(values map[string]any) map[string]any {
	s.Helper()
	content, err := os.ReadFile(filepath.Join(widgetLayout(), "index.json"))
	s.must(err)
	var index struct {
		Manifests []struct{ Annotations map[string]string }
	}
	s.must(json.Unmarshal(content, &index))
	values["pluginImages"] = []any{map[string]any{
		"name": "widget", "image": index.Manifests[0].Annotations["io.containerd.image.name"],
	}}
	group := values["nodeGroups"].([]any)[0].(map[string]any)
	group["plugins"] = append(group["plugins"].([]any), "widget")
	values["policies"] = map[string]any{"devices": []any{"nvidia.com", string(widget)}}
	return values
}

// checkWidgets runs a pod that requests two widgets of one board, and makes sure that it has these.
func (s *story) checkWidgets() {
	s.Helper()
	pod := clustertest.IdlePod(s.namespace, "widgets", map[corev1.ResourceName]int64{widget: 2})
	kube.SetRequests(pod, `"board/A/widget/0/cards":1,"board/A/widget/1/cards":1`)
	pod = s.run(pod)
	printed, err := shared.Client.Exec(s.ctx, pod, "main", "sh", "-c",
		"echo $WIDGETS; find /dev/widgets -type c | sort")
	s.must(err)
	const want = "/dev/widgets/b1/w1,/dev/widgets/b1/w2\n/dev/widgets/b1/w1\n/dev/widgets/b1/w2\n"
	if strings.ReplaceAll(printed, "\r", "") != want {
		s.Errorf("the container has the widgets\n%swant\n%s", printed, want)
	}
	clustertest.DeletePod(s.ctx, s, shared.Client, pod)
}
