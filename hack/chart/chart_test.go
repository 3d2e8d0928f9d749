// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const root = "../.."

var rewrite = flag.Bool("rewrite", false, "write the renderings in testdata again")

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	files, err := generated(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is not what make chart writes (-want +got):\n%s", name, diff)
		}
	}
}

// renderings are values of each kind of installation. The first one has the defaults.
var renderings = []struct{ name, version, values string }{
	{"nri", "v1.37.1", "{}"},
	{"nri-1.35", "v1.35.0", "{}"},
	{"cri", "v1.37.1", "{mode: cri, node: {enrolArgs: [--kubelet-unit=snap.kubelet.service]}}"},
	{"replace", "v1.37.1", "{scheduler: {mode: replace}}"},
	{"scheduler-alone", "v1.37.1", "{mode: none, seals: {mode: \"off\"}}"},
	{"air-gapped", "v1.37.1", `
image:
  registry: registry.example/mirror/
  pullSecrets: [mirror]
  pullPolicy: Always
  scheduler: {digest: "sha256:` + strings.Repeat("a", 64) + `"}
  kubecri: {digest: "sha256:` + strings.Repeat("b", 64) + `"}
seals: {keys: existing, secret: our-key, certificates: our-certificates}
`},
	{"everything", "v1.37.1", `
nodeGroups:
- {name: a100, nodeSelector: {gpu: a100, kubedevice.io/devices: "true"}, plugins: [nvidiagpu]}
- name: simulated
  nodeSelector: {gpu: simulated}
  plugins: [simgpu]
  env: [{name: KUBEDEVICE_SIMGPU_CONFIG, value: /etc/inventory.yaml}]
  tolerations: [{key: gpu, operator: Exists}]
node:
  metricsBindAddress: "0.0.0.0:10261"
  deviceFirewall: {allow: [kube-system/*, monitoring/dcgm]}
  virtualDevices: {nvidia.com/gpu: 10}
scheduler:
  tolerations: [{key: control, operator: Exists}]
  nodeSelector: {pool: system}
  args: {bestDevicesWait: 5m, quota: everywhere, evictUnallocated: true, topology: require}
  extraArgs: [--v=3]
policies: {schedulers: [alice], devices: [example.com/nic], deviceRequests: true, requestsNeedLimits: true}
monitoring: {enabled: true}
uninstall: {drain: true}
`},
	{"plugins", "v1.37.1", `
pluginImages:
- {name: widget, image: registry.example/widget-plugin:v0.1.0}
- {name: our.nic, image: "registry.example:5000/nic@sha256:` + strings.Repeat("c", 64) + `", scheduler: false}
- {name: simgpu, image: registry.example/simgpu-plugin:v2}
nodeGroups:
- {name: widgets, nodeSelector: {widgets: "true"}, plugins: [nvidiagpu, widget, our.nic]}
- {name: gpus, nodeSelector: {gpus: "true"}, plugins: [nvidiagpu]}
`},
	{"names-like-numbers", "v1.37.1", `
image: {pullSecrets: ["10"]}
nodeGroups:
- {name: "4090", nodeSelector: {gpu: "4090"}, plugins: [nvidiagpu]}
- {name: "true", nodeSelector: {gpu: "true"}, plugins: [nvidiagpu]}
node: {priorityClassName: "20"}
scheduler: {priorityClassName: "30"}
seals: {keys: existing, secret: "40", certificates: "50"}
`},
	{"managed", "v1.37.1", `
scheduler: {placement: any, nodeSelector: {pool: system}}
policies: {missingPlugins: {annotation: tolerate.example.com, namespaces: [monitoring]}}
`},
}

// What the chart makes of values: all objects of the defaults, and of the others those that differ
// from these.
func TestRenderings(t *testing.T) {
	c, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	var defaults []object
	for i, r := range renderings {
		objects, err := render(c, r.version, r.values)
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		if i == 0 {
			defaults = objects
		}
		got := describeRendering(objects, defaults, i == 0)
		golden := filepath.Join("testdata", r.name+".yaml")
		if *rewrite {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got; go test -rewrite takes what is got):\n%s", golden, diff)
		}
	}
}

func describeRendering(objects, defaults []object, whole bool) string {
	var out strings.Builder
	for _, o := range defaults {
		if !slices.ContainsFunc(objects, func(other object) bool { return other.String() == o.String() }) {
			fmt.Fprintf(&out, "# without %s\n", o)
		}
	}
	for _, o := range objects {
		if whole || !slices.Contains(defaults, o) {
			fmt.Fprintf(&out, "---\n# %s\n%s", o.template, o.text)
		}
	}
	return out.String()
}

// An API server decodes what YAML takes for a number or a truth value as nothing else.
func TestObjectsHaveTheFieldsAndTypesOfTheAPI(t *testing.T) {
	c, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, r := range renderings {
		objects, err := render(c, r.version, r.values)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			_, _, err := decoder.Decode([]byte(o.text), nil, nil)
			if err != nil && !runtime.IsNotRegisteredError(err) { // the Prometheus operator's
				t.Errorf("%s: %s: %v", r.name, o, err)
			}
		}
	}
}

func TestTheChartHasNoWebhooksAndNoResourcesOfItsOwn(t *testing.T) {
	c, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range renderings {
		objects, err := render(c, r.version, r.values)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if strings.Contains(o.kind, "Webhook") || o.kind == "CustomResourceDefinition" || o.kind == "APIService" {
				t.Errorf("%s: %s", r.name, o)
			}
		}
	}
	if len(c.CRDObjects()) > 0 {
		t.Error("the chart has CRDs")
	}
}

// Sites without a way out name a registry and digests, and nothing is pulled from elsewhere.
func TestAllImagesComeFromTheRegistryOfTheValues(t *testing.T) {
	c, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := render(c, "v1.37.1", renderings[5].values)
	if err != nil {
		t.Fatal(err)
	}
	image, found := regexp.MustCompile(`(?m)^ +(?:- )?image: (.*)$`), 0
	for _, o := range objects {
		for _, match := range image.FindAllStringSubmatch(o.text, -1) {
			if found++; !strings.HasPrefix(match[1], "registry.example/mirror/kubedevice-") ||
				!strings.Contains(match[1], "@sha256:") {
				t.Errorf("%s has the image %s", o, match[1])
			}
		}
	}
	if found != 4 {
		t.Errorf("found %d images, want those of scheduler, nodes and two hooks", found)
	}
}

func TestWrongValuesAreRefusedWithAReason(t *testing.T) {
	c, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ values, want string }{
		"a value that does not exist": {"{nodes: {}}", "additional properties 'nodes' not allowed"},
		"a typing error below":        {"{scheduler: {replica: 3}}", "'/scheduler': additional properties 'replica'"},
		"an unknown mode":             {"{mode: proxy}", "'/mode': value must be one of 'nri', 'cri', 'none'"},
		"a number that is too small":  {"{scheduler: {replicas: 0}}", "'/scheduler/replicas': minimum: got 0, want 1"},
		"a group without a selector": {
			"{nodeGroups: [{name: a, nodeSelector: {}, plugins: []}]}", "minProperties: got 0, want 1",
		},
		"a group without a name": {
			"{nodeGroups: [{nodeSelector: {a: b}, plugins: []}]}", "missing property 'name'",
		},
		"a digest that is none":             {"{image: {kubecri: {digest: sha256:12}}}", "'/image/kubecri/digest'"},
		"a relative path":                   {"{node: {kubeconfig: kubelet.conf}}", "'/node/kubeconfig'"},
		"a quote that would end a CEL text": {`{policies: {schedulers: ["a', 'b"]}}`, "'/policies/schedulers/0'"},
		"a word in the place of a list":     {"{policies: {devices: nvidia.com}}", "got string, want array"},
		"an image of a plugin without a tag": {
			"{pluginImages: [{name: a, image: registry.example:5000/a}]}", "'/pluginImages/0/image'",
		},
		"a plugin without an image": {"{pluginImages: [{name: a}]}", "missing property 'image'"},
		"two images of a plugin": {
			"{pluginImages: [{name: a, image: a:1}, {name: a, image: a:2}]}", `two images have the plugin "a"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := render(c, "v1.37.1", test.values); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestHelmsLinterFindsNothing(t *testing.T) {
	for _, r := range renderings {
		values := map[string]any{}
		if err := yaml.Unmarshal([]byte(r.values), &values); err != nil {
			t.Fatal(err)
		}
		found := lint.RunAll(filepath.Join(root, "deploy", "chart"), values, release.Namespace)
		for _, message := range found.Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%s: %s: %v", r.name, message.Path, message.Err)
			}
		}
	}
}

func TestEachValueHasADescriptionADefaultAndNothingElse(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy", "chart", "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	top := &schema{}
	if err := json.Unmarshal(text, top); err != nil {
		t.Fatal(err)
	}
	if text, err = os.ReadFile(filepath.Join(root, "deploy", "chart", "values.yaml")); err != nil {
		t.Fatal(err)
	}
	defaults := map[string]any{}
	if err := yaml.Unmarshal(text, &defaults); err != nil {
		t.Fatal(err)
	}
	delete(top.Properties, "global")
	checkSchema(t, "values", top, defaults)
}

// checkSchema checks an object of the schema. defaults is nil for what stands in lists.
func checkSchema(t *testing.T, path string, s *schema, defaults map[string]any) {
	t.Helper()
	if s.AdditionalProperties != false {
		t.Errorf("%s takes names that are not in the schema", path)
	}
	for name, member := range s.Properties {
		if !strings.HasSuffix(member.Description, ".") {
			t.Errorf("%s.%s is described as %q", path, name, member.Description)
		}
		value, known := defaults[name]
		if defaults != nil && !known && path != "values.node.resources" && path != "values.scheduler.resources" {
			t.Errorf("values.yaml lacks %s.%s", path, name)
		}
		if len(member.Properties) > 0 {
			below, _ := value.(map[string]any)
			checkSchema(t, path+"."+name, member, below)
		}
		if member.Items != nil && len(member.Items.Properties) > 0 {
			checkSchema(t, path+"."+name+"[]", member.Items, nil)
		}
	}
}

func TestChartAndMakefileHaveOneVersion(t *testing.T) {
	c, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^VERSION +:= v(\S+)$`).FindSubmatch(makefile)
	if version == nil || c.Metadata.Version != string(version[1]) || c.Metadata.AppVersion != "v"+string(version[1]) {
		t.Errorf("the chart is %s of %s, and the Makefile has %s", c.Metadata.Version, c.Metadata.AppVersion, version)
	}
}

// Artifact Hub reads annotations as its documents say
// (https://artifacthub.io/docs/topics/annotations/helm).
func TestArtifactHubReadsImagesLinksAndLicenceOfTheChart(t *testing.T) {
	c, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	annotations := c.Metadata.Annotations
	prerelease := fmt.Sprint(strings.Contains(c.Metadata.Version, "-"))
	if annotations["artifacthub.io/prerelease"] != prerelease || annotations["artifacthub.io/license"] != "Apache-2.0" {
		t.Errorf("version %s has the annotations %q", c.Metadata.Version, annotations)
	}
	var images, links []struct {
		Name, Image, URL string
		Platforms        []string
	}
	if err := yaml.UnmarshalStrict([]byte(annotations["artifacthub.io/images"]), &images); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(annotations["artifacthub.io/links"]), &links); err != nil {
		t.Fatal(err)
	}
	objects, err := render(c, "v1.37.1", "{}")
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string]bool{}, map[string]bool{}
	for _, o := range objects {
		for _, match := range regexp.MustCompile(`(?m)^ +(?:- )?image: (.*)$`).FindAllStringSubmatch(o.text, -1) {
			want[match[1]] = true
		}
	}
	for _, i := range images {
		got[i.Image] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the images are not those that the chart renders (-want +got):\n%s", diff)
	}
	for _, l := range links {
		file, ok := strings.CutPrefix(l.URL, c.Metadata.Home+"/blob/"+c.Metadata.AppVersion+"/")
		if _, err := os.Stat(filepath.Join(root, file)); !ok || err != nil {
			t.Errorf("%s is %s, no file of the release: %v", l.Name, l.URL, err)
		}
	}
}
