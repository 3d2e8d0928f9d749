// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
)

// account is that of deploy/monitoring/rights.yaml.
const account = "kubedevice-monitoring"

// server is a Prometheus on the first node.
type server struct{ client *http.Client }

// startPrometheus starts a Prometheus that scrapes nodes and scheduler every second, with the
// rights that deploy/monitoring gives. Its alerts wait two seconds each, not minutes.
func startPrometheus(ctx context.Context, t *testing.T) *server {
	t.Helper()
	node := shared.Nodes[0]
	if err := shared.Apply(ctx, filepath.Join(root(t), "deploy", "monitoring", "rights.yaml")); err != nil {
		t.Fatal(err)
	}
	findsNodes(ctx, t)
	token, err := shared.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"token": token.Status.Token, "prometheus.yaml": configuration(t), "alerts.yaml": alerts(t),
	} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program := node.NewComponent("prometheus", cluster.Program{Path: prometheus, Args: []string{
		"--config.file=" + filepath.Join(files, "prometheus.yaml"),
		"--storage.tsdb.path=" + filepath.Join(files, "data"), "--web.listen-address=127.0.0.1:9090",
	}})
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := program.Terminate(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	return &server{&http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: node.Sandbox().Dial,
	}}}
}

// findsNodes lets Prometheus list nodes, which the operator's own role does elsewhere.
func findsNodes(ctx context.Context, t *testing.T) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "prometheus-finds-nodes"}
	_, err := shared.Client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"},
		}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = shared.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: metav1.NamespaceSystem}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// object is a part of a YAML file.
type object = map[string]any

// configuration returns Prometheus' own form of deploy/monitoring/kubecri.yaml, with the scheduler
// added: a PodMonitor finds static pods, and here it is none.
func configuration(t *testing.T) string {
	t.Helper()
	api, err := clientcmd.BuildConfigFromFlags("", shared.SchedulerKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(api.Host)
	if err != nil {
		t.Fatal(err)
	}
	var scrape struct {
		Spec struct {
			JobName     string   `json:"jobName"`
			Scheme      string   `json:"scheme"`
			Relabelings []object `json:"relabelings"`
			Discovery   []object `json:"kubernetesSDConfigs"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/monitoring/kubecri.yaml")), &scrape); err != nil {
		t.Fatal(err)
	}
	for _, relabeling := range scrape.Spec.Relabelings {
		for operators, own := range map[string]string{"sourceLabels": "source_labels", "targetLabel": "target_label"} {
			if value, ok := relabeling[operators]; ok {
				delete(relabeling, operators)
				relabeling[own] = value
			}
		}
	}
	token := object{"credentials_file": filepath.Join(files, "token")}
	insecure := object{"insecure_skip_verify": true}
	for _, discovery := range scrape.Spec.Discovery {
		discovery["role"] = strings.ToLower(discovery["role"].(string))
		discovery["api_server"], discovery["authorization"], discovery["tls_config"] = api.Host, token, insecure
	}
	text, err := yaml.Marshal(object{
		"global":     object{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{filepath.Join(files, "alerts.yaml")},
		"scrape_configs": []object{
			{
				"job_name": scrape.Spec.JobName, "scheme": strings.ToLower(scrape.Spec.Scheme), "authorization": token,
				"tls_config": insecure, "kubernetes_sd_configs": scrape.Spec.Discovery,
				"relabel_configs": scrape.Spec.Relabelings,
			},
			{
				"job_name": "kubedevice-scheduler", "scheme": "https", "authorization": token, "tls_config": insecure,
				"static_configs": []object{{"targets": []string{address.Hostname() + ":10259"}}},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// alerts returns the alerts as Prometheus reads them.
func alerts(t *testing.T) string {
	t.Helper()
	var rules struct {
		Spec object `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/monitoring/kubedevice-alerts.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(rules.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^(\s+)for: .*$`).ReplaceAllString(string(text), "${1}for: 2s")
}

func root(t *testing.T) string {
	t.Helper()
	root, err := checkout.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// get reads a path of Prometheus' API.
func (s *server) get(ctx context.Context, path string, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9090/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	envelope := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(answer.Body).Decode(&envelope); err != nil {
		return fmt.Errorf("%s: status %d: %w", path, answer.StatusCode, err)
	}
	if envelope.Status != "success" {
		return fmt.Errorf("%s: %s", path, envelope.Error)
	}
	return nil
}

// query returns how many series an expression has now.
func (s *server) query(ctx context.Context, expr string) (series int, err error) {
	var data struct{ Result []any }
	err = s.get(ctx, "query?query="+url.QueryEscape(expr), &data)
	return len(data.Result), err
}

// awaitAlert waits until an alert with these labels fires, or does not.
func (s *server) awaitAlert(ctx context.Context, t *testing.T, fires bool, labels map[string]string) {
	t.Helper()
	clustertest.AwaitSuccess(ctx, t, fmt.Sprintf("the alert %v to fire: %v", labels, fires), func() error {
		var data struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}
		err := s.get(ctx, "alerts", &data)
		found := false
		for _, alert := range data.Alerts {
			same := alert.State == "firing"
			for name, value := range labels {
				same = same && alert.Labels[name] == value
			}
			found = found || same
		}
		if err == nil && found != fires {
			err = fmt.Errorf("the alerts are %v", data.Alerts)
		}
		return err
	})
}
