// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request"
)

// manifests are those of the transcripts of kubectl device lint.
func manifests(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"*.yaml", "more/*"} {
		files, err := filepath.Glob("../command/testdata/lint/" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%d manifests, %v", len(files), err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found[file] = string(content)
		}
	}
	return found
}

// aCluster has a node of two GPUs, and one whose kubelet has FPGAs.
func aCluster(t testing.TB) *Cluster {
	t.Helper()
	return NewCluster([]*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			deviceinfo.Annotation: `{"capacity": {"nvidia.com/gpu": 2,
				"resource/group/gpu/a/cards": 1, "resource/group/gpu/a/memory": 10485760,
				"resource/group/gpu/b/cards": 1, "resource/group/gpu/b/memory": 1}}`,
		}}},
		{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{
			"example.com/fpga": apiresource.MustParse("3"), "cpu": apiresource.MustParse("4"),
		}}},
		{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{deviceinfo.Annotation: "{"}}},
	})
}

// In each style of the scalar, the place of a byte of the value is where that byte stands.
func TestPlacesInAValueAreThoseInTheText(t *testing.T) {
	for style, content := range map[string]string{
		"literal": "key: |2+ # indented by two\n\n    {\"ünï\": \"it's\",\n  \t\"a\": 5,\n\n  \"b\": [1,\n   2]}\n\n",
		"folded":  "key: >-\n  {\"ünï\": \"it's\",\n  \"a\": 5,\n\n    \"b\": [1,\n  2]}\n",
		"single":  "key: '{\"ünï\": \"it''s\",\n\n  \"a\": 5,   \n \"b\": [1, 2]}'\n",
		"double":  "key: \"{\\\"ünï\\\":\\x20\\\"it's\\\",\\n\\\n  \\t \\\"a\\\": 5, \n\n \\\"b\\\": [1, 2]}\"\n",
		"plain":   "key:\n  ünï it's\n  5,\n\n   [1, 2]}\n",
	} {
		for variant, change := range map[string]func(string) string{
			"as it is":      func(s string) string { return s },
			"CRLF":          func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
			"after a line":  func(s string) string { return "# ü\n\n" + s },
			"with a tag":    func(s string) string { return strings.Replace(s, "key: ", "key: &x !!str ", 1) },
			"on a new line": func(s string) string { return strings.Replace(s, "key: ", "key: !!str\n  ", 1) },
		} {
			t.Run(style+" "+variant, func(t *testing.T) {
				content := change(content)
				var document yaml.Node
				if err := yaml.Unmarshal([]byte(content), &document); err != nil {
					t.Fatal(err)
				}
				text, node := newText(content), get(document.Content[0], "key")
				last := -1
				for i, r := range node.Value {
					if r == ' ' || r == '\n' || r == '\t' {
						continue
					}
					place := text.positionInScalar(node, i)
					stands := strings.TrimPrefix(content[place:], `\`)
					if !strings.HasPrefix(stands, string(r)) || place <= last {
						t.Fatalf("byte %d of the value (%q) is at %d, %.10q\n%s", i, r, place, content[place:], content)
					}
					last = place
				}
			})
		}
	}
}

func TestAPlaceThatCannotBeKnownIsTheBeginning(t *testing.T) {
	const content = `key: "{\a\x41bc}"`
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(content), &document); err != nil {
		t.Fatal(err)
	}
	node, text := get(document.Content[0], "key"), newText(content)
	for offset := 1; offset < len(node.Value)+2; offset++ {
		if got := text.positionInScalar(node, offset); got != len("key: ") {
			t.Errorf("byte %d: %d", offset, got)
		}
	}
}

// Rules that the transcripts do not show, each with the one finding of an otherwise good pod.
func TestFindings(t *testing.T) {
	names, requests := "", ""
	for i := range 129 {
		names += fmt.Sprintf("{name: c%d}, ", i)
		requests += fmt.Sprintf(`"c%d": {"requests": {"gpu/a/memory": 1048576}}, `, i)
	}
	const oneMain = "{containers: [{name: main}]}"
	for name, test := range map[string]struct {
		value, spec string // in single quotes; a flow mapping
		offline     bool
		want        string
	}{
		"an annotation that is too long": {
			value: `{"x": "` + strings.Repeat("x", 33<<10) + `"}`, spec: oneMain,
			want: "f:2:26: error: annotation KubeDevice/DeviceInfo is 33801 bytes long",
		},
		"too many containers": {
			value: "{}", spec: "{containers: [" + names + names + "]}",
			want: "f:2:26: error: the pod requests devices and has 258 containers",
		},
		"too many containers of a pod without devices": {spec: "{containers: [" + names + names + "]}"},
		"too many containers that request": {
			value: `{"runningcontainer": {` + strings.TrimSuffix(requests, ", ") + "}}",
			spec:  "{containers: [" + names + "]}",
			want:  `f:2:26: error: annotation KubeDevice/DeviceInfo: container "c40": more than 64 containers`,
		},
		"a backslash": {
			value: `{"request\u0073": {}}`, spec: oneMain,
			want: `f:2:59: error: annotation KubeDevice/DeviceInfo: it has a backslash`,
		},
		"a key that occurs twice": {
			value: `{"requests": {}, "requests": {}}`, spec: oneMain,
			want: `f:2:68: error: annotation KubeDevice/DeviceInfo: the key "requests" occurs twice`,
		},
		"a value that ends too early": {
			value: `{"requests": {}`, spec: oneMain,
			want: `f:2:64: error: annotation KubeDevice/DeviceInfo: the value is not JSON`,
		},
		"a field in upper case": {
			value: `{"RUNNINGCONTAINER": {}}`, spec: oneMain,
			want: `RUNNINGCONTAINER: the field is not read; did you mean "runningcontainer"?`,
		},
		"the schema of an editor": {value: `{"$schema": "deviceinfo.schema.json"}`, spec: oneMain},
		"an option of a plugin":   {value: `{"requests": {"gpu/gpu-generate-topology": 0}}`, spec: oneMain},
		"more memory than any GPU has": {
			value: `{"runningcontainer": {"main": {"requests": {"gpu/x/memory": "11Mi"}}}}`, spec: oneMain,
			want: "it is 11 MiB: no node has more of it than 10 MiB in one gpu",
		},
		"no cluster to compare with": {
			value: `{"runningcontainer": {"main": {"requests": {"gpu/x/memory": "11Mi", "no/x/y": 1}}}}`, spec: oneMain,
			offline: true,
		},
		"a whole GPU without a limit": {
			value: `{"runningcontainer": {"main": {"requests": {"gpu/x/cards": 1}}}}`, spec: oneMain,
			want: `f:2:73: warning: container "main" requests 1 of nvidia.com/gpu in the annotation`,
		},
		"whole GPUs of the pod": {
			value: `{"requests": {"nvidia.com/gpu": 1}}`, spec: oneMain,
			want: "f:2:65: error: annotation KubeDevice/DeviceInfo: requests[\"nvidia.com/gpu\"]: " +
				"a pod as a whole gets no devices",
		},
		"what may be an option of a plugin": {
			value: `{"runningcontainer": {"main": {"requests": {"gpus/mode": 1}}}}`, spec: oneMain, offline: true,
		},
		"no path, count or option": {
			value: `{"runningcontainer": {"main": {"requests": {"gpus": 1}}}}`, spec: oneMain, offline: true,
			want: `f:2:95: warning: annotation KubeDevice/DeviceInfo: runningcontainer["main"].requests["gpus"]: no ` +
				"device scheduler reads this request, and it has no effect",
		},
		"as many limits as whole GPUs": {
			value: `{"runningcontainer": {"main": {"requests": {"gpu/x/cards": 1}}}}`,
			spec:  "{containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}",
		},
		"what a kubelet has": {spec: "{containers: [{name: main, resources: {limits: {example.com/fpga: 3}}}]}"},
		"more than a kubelet has": {
			spec: "{containers: [{name: main, resources: {limits: {example.com/fpga: 4}}}]}",
			want: `f:3:73: warning: container "main": with it the pod requests 4 of example.com/fpga: no node has more`,
		},
		"init containers run before the others": {
			spec: "{initContainers: [{name: i, resources: {limits: {nvidia.com/gpu: 2}}}], containers: [{name: main, " +
				"resources: {limits: {nvidia.com/gpu: 2}}}]}",
		},
		"sidecars run along with the others": {
			spec: "{initContainers: [{name: i, restartPolicy: Always, resources: {limits: {nvidia.com/gpu: 2}}}], " +
				"containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}",
			want: `container "main": with it the pod requests 3 of nvidia.com/gpu: no node has more than 2`,
		},
		"a node for a pod that counts": {
			spec: "{nodeName: n, containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}",
			want: "f:3:18: warning: if nvidia.com/gpu is a device of KubeDevice, the pod would not get it",
		},
		"a node for a pod without devices": {spec: "{nodeName: n, containers: [{name: main}]}"},
	} {
		t.Run(name, func(t *testing.T) {
			content := "kind: Pod\nmetadata: {annotations: {KubeDevice/DeviceInfo: '" + test.value + "'}}\nspec: " +
				test.spec + "\n"
			cluster := aCluster(t)
			if test.offline {
				cluster = nil
			}
			found, err := File("f", []byte(content), cluster)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range found {
				got = append(got, f.String())
			}
			switch {
			case test.want == "" && len(got) == 0:
			case test.want == "" || len(got) != 1 || !strings.Contains(got[0], test.want):
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}

// The severity of a misspelled key is that of what the scheduler does with the pod.
func TestMistakesInAnnotationsAreFound(t *testing.T) {
	const limits = ", resources: {limits: {nvidia.com/gpu: 1}}"
	for _, test := range []struct{ annotation, limits, want string }{
		{"KubeDevice/DeviceInfo: '{}'", limits, ""},
		{"example.com/owner: me", limits, ""},
		{"kubedevice/deviceinfo: '{}'", "", `f:2:26: error: annotation kubedevice/deviceinfo: no program reads it; ` +
			`did you mean "KubeDevice/DeviceInfo"?`},
		{"KubeDevice/OnDevicefailure: Evict", "", `f:2:26: warning: annotation KubeDevice/OnDevicefailure: no ` +
			`program reads it; did you mean "KubeDevice/OnDeviceFailure"?`},
		{"KubeDevice/OnDevicefailure: Evict", limits, `f:2:26: error: annotation KubeDevice/OnDevicefailure: no ` +
			`program reads it; did you mean "KubeDevice/OnDeviceFailure"?`},
		{"KubeDevice/Policy: Evict", limits, `f:2:26: warning: annotation KubeDevice/Policy: no program reads it`},
		{"KubeDevice/OnDeviceFailure: Evict", limits, ""},
		{"KubeDevice/OnDeviceFailure: evict", limits, `f:2:54: warning: annotation KubeDevice/OnDeviceFailure: ` +
			`"evict" is none of Ignore, Evict and Replace`},
		{"KubeDevice/DeviceFailureGracePeriod: 90s", limits, ""},
		{"KubeDevice/DeviceFailureGracePeriod: '90'", limits, `f:2:63: warning: annotation ` +
			`KubeDevice/DeviceFailureGracePeriod: "90" is no duration such as 90s`},
	} {
		content := fmt.Sprintf("kind: Pod\nmetadata: {annotations: {%s}}\nspec: {containers: [{name: c%s}]}\n",
			test.annotation, test.limits)
		found, err := File("f", []byte(content), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range found {
			got = append(got, f.String())
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: found %q, want %q", test.annotation, got, test.want)
		}
	}
}

func TestAnnotationsOfAWorkloadAreFound(t *testing.T) {
	for _, key := range request.AnnotationKeys() {
		content := fmt.Sprintf("kind: Job\nmetadata: {name: j, annotations: {%s: x}}\n"+
			"spec: {template: {spec: {containers: [{name: c}]}}}\n", key)
		found, err := File("f", []byte(content), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || !strings.Contains(found[0].Message, "annotation "+key+" of Job j itself is not read") {
			t.Errorf("%s: found %q", key, found)
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, content := range manifests(f) {
		f.Add(content)
	}
	f.Add("a: &a [*a]\nkind: List\nitems: [*a, {<<: [*a, {spec: {template: *a}}]}]")
	f.Add("kind: Pod\nmetadata: {annotations: {KubeDevice/DeviceInfo: !!binary 'e30='}}")
	cluster := aCluster(f)
	f.Fuzz(func(t *testing.T, content string) {
		found, _ := File("f", []byte(content), cluster)
		lines := strings.Split(strings.TrimPrefix(content, "\ufeff"), "\n")
		for _, finding := range found {
			if finding.Line < 1 || finding.Line > len(lines) || finding.Column < 1 ||
				finding.Column > len([]rune(lines[finding.Line-1]))+2 {
				t.Errorf("%s: no such place", finding)
			}
		}
	})
}
