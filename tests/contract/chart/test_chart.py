"""What the chart renders, for many values: names, rights, settings, and what it refuses."""

import base64
import importlib
import re
from typing import Any

import kubernetes_validate
import pytest
import yaml
from chart_rendering import EVERYTHING, VARIANTS, Object, Refuse, Render, one, pods

from flexinfer import cli
from flexinfer.apps.scheduler import shadow_of
from flexinfer.config import people
from flexinfer.config.common import env_name, parse
from flexinfer.config.scheduler import SchedulerSettings
from flexinfer.core.placement.scoring import Weights

NEWEST = ("1.35", "1.36", "1.37")
FOREIGN = ("ServiceMonitor", "PodMonitor", "PrometheusRule", "CustomResourceDefinition")


@pytest.fixture(params=sorted(VARIANTS))
def objects(request: pytest.FixtureRequest, render: Render) -> list[Object]:
    return render(*VARIANTS[request.param])


def containers(objects: list[Object]) -> list[tuple[str, Object, Object]]:
    return [(name, pod, container) for name, pod in pods(objects) for container in pod["containers"]]


# --- every rendering -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", NEWEST)
def test_the_schemas_of_the_newest_minors_accept_everything(
    render: Render, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, contents = kubernetes_validate.utils.schema_contents, {}

    def once(filename: str, desired: str) -> Any:
        if filename not in contents:
            contents[filename] = read(filename, desired)
        return contents[filename]

    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", once)
    for obj in (*render(*EVERYTHING), *render()):
        if obj["kind"] not in FOREIGN:
            assert kubernetes_validate.validate(obj, version, strict=True) == version


def test_no_two_objects_are_the_same(objects: list[Object]) -> None:
    keys = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]

    assert len(keys) == len(set(keys))


def test_containers_run_without_rights(objects: list[Object]) -> None:
    for name, pod, container in containers(objects):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True, name
        if name == "flexinfer-agent" and not pod["securityContext"].get("runAsNonRoot"):
            continue  # agent.hostAccess says what it has instead
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert (context["allowPrivilegeEscalation"], context["capabilities"]) == (False, {"drop": ["ALL"]}), name
        assert not pod.get("hostNetwork")
        assert not pod.get("hostPID")


def test_containers_say_what_they_need_and_when_they_are_ready(objects: list[Object]) -> None:
    for name, pod, container in containers(objects):
        assert {"cpu", "memory"} <= set(container["resources"]["requests"]), name
        assert "memory" in container["resources"]["limits"], name
        if pod.get("restartPolicy") == "Never":
            continue  # a hook: it ends by itself
        assert "livenessProbe" in container, name
        if container["name"] != "kube-scheduler":
            assert "readinessProbe" in container, name


def test_every_pod_names_the_container_kubectl_means(objects: list[Object]) -> None:
    for name, pod in pods(objects):
        if name.endswith("-test"):
            continue
        default = pod["_meta"]["annotations"]["kubectl.kubernetes.io/default-container"]
        assert pod["containers"][0]["name"] == default


def test_mounts_have_volumes_and_volumes_are_mounted(objects: list[Object]) -> None:
    claims = {
        obj["metadata"]["name"]: obj["spec"].get("volumeClaimTemplates", [])
        for obj in objects
        if obj["kind"] == "StatefulSet"
    }
    for name, pod in pods(objects):
        everyone = [*pod["containers"], *pod.get("initContainers", [])]
        mounted = {mount["name"] for container in everyone for mount in container.get("volumeMounts", [])}
        there = {volume["name"] for volume in pod.get("volumes", [])} | {
            c["metadata"]["name"] for c in claims.get(name, [])
        }
        assert mounted == there, name


def test_selectors_find_their_pods(objects: list[Object]) -> None:
    found = [(pod["_meta"]["labels"], pod) for name, pod in pods(objects) if not name.endswith("-test")]
    for obj in objects:
        if obj["kind"] == "Service":
            wanted, names = obj["spec"]["selector"], [port["targetPort"] for port in obj["spec"]["ports"]]
        elif obj["kind"] in ("NetworkPolicy", "PodDisruptionBudget"):
            selector = obj["spec"].get("podSelector") or obj["spec"]["selector"]
            wanted, names = selector["matchLabels"], []
        else:
            continue
        [pod] = [pod for labels, pod in found if wanted.items() <= labels.items()]
        ports = {port["name"] for container in pod["containers"] for port in container["ports"]}
        assert set(names) <= ports, obj["metadata"]["name"]


def test_bindings_lead_to_accounts_that_pods_use(objects: list[Object]) -> None:
    accounts = {(o["metadata"]["namespace"], o["metadata"]["name"]) for o in objects if o["kind"] == "ServiceAccount"}
    roles = {(o["kind"], o["metadata"]["name"]) for o in objects if o["kind"] in ("Role", "ClusterRole")}
    for obj in objects:
        if obj["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            assert {(s["namespace"], s["name"]) for s in obj["subjects"]} <= accounts
            role = (obj["roleRef"]["kind"], obj["roleRef"]["name"])
            assert role in roles or role[1].startswith(("system:", "extension-apiserver"))
    used = {pod["serviceAccountName"] for name, pod in pods(objects) if not name.endswith("-test")}
    assert used == {name for _, name in accounts}


def test_the_settings_of_every_container_are_understood(objects: list[Object]) -> None:
    for name, _, container in containers(objects):
        program = container["command"][0]
        if program == "flexinfer":
            settings = getattr(people, cli._COMMANDS[container["command"][1]][0])
        elif program not in cli._PROGRAMS:
            assert program in ("nats-server", "kube-scheduler", "python"), name
            continue
        else:
            module, cls, _ = cli._PROGRAMS[program]
            settings = getattr(importlib.import_module(module), cls)
        known = {env_name(field, info) for field, info in settings.model_fields.items()}
        given = {entry["name"]: entry.get("value", "x") for entry in container["env"]}
        foreign = {variable for variable in given if variable not in known and not variable.startswith("NVIDIA_")}
        # Where the pods of the bus run and who they are: read by no setting of these.
        assert foreign <= {"POD_NAMESPACE", "POD_NAME"}, name
        parse(settings, program, container.get("args", []), given)


# --- names and values people type ------------------------------------------------------------------------------


def test_the_names_people_type(render: Render) -> None:
    objects = render()

    for kind, name in (
        ("Deployment", "flexinfer-controller"), ("Deployment", "flexinfer-scheduler"), ("DaemonSet", "flexinfer-agent"),
        ("Deployment", "flexinfer-proxy"), ("StatefulSet", "flexinfer-nats"),
    ):  # fmt: skip
        assert one(objects, kind, name)["metadata"]["namespace"] == "flexinfer-system"
    for name, port in (("flexinfer-controller", 8080), ("flexinfer-scheduler", 8000), ("flexinfer-proxy", 8080)):
        assert one(objects, "Service", name)["spec"]["ports"][0]["port"] == port
    assert not [obj for obj in objects if "global-proxy" in obj["metadata"]["name"] and obj["kind"] == "Deployment"]


def test_the_scheduler_may_live_in_another_namespace(render: Render) -> None:
    objects = render("--set", "scheduler.namespace=kube-system")
    deployment = one(objects, "Deployment", "flexinfer-scheduler")
    [extender, _] = deployment["spec"]["template"]["spec"]["containers"]

    assert deployment["metadata"]["namespace"] == "kube-system"
    assert {"name": "POD_NAMESPACE", "value": "flexinfer-system"} in extender["env"]
    for kind, name in (
        ("Secret", "flexinfer-nats-scheduler"), ("ConfigMap", "flexinfer-nats-ca"),
        ("ConfigMap", "flexinfer-scheduler"), ("ServiceAccount", "flexinfer-scheduler"),
        ("Service", "flexinfer-scheduler"),
        ("Lease", "flexinfer-scheduler"), ("NetworkPolicy", "flexinfer-scheduler"),
    ):  # fmt: skip
        one(objects, kind, name, "kube-system")
    secrets = [o["stringData"] for o in objects if o["metadata"]["name"] == "flexinfer-nats-scheduler"]
    assert len(secrets) == 2
    assert secrets[0] == secrets[1]


@pytest.mark.parametrize(
    ("version", "tag"), [("1.34.2", "v1.34.2"), ("v1.33.5+k3s1", "v1.33.5"), ("v1.32.1-gke.7", "v1.32.1")]
)
def test_kube_scheduler_follows_the_version_of_the_cluster(render: Render, version: str, tag: str) -> None:
    deployment = one(render(version=version), "Deployment", "flexinfer-scheduler")
    [_, kube] = deployment["spec"]["template"]["spec"]["containers"]

    assert kube["image"] == f"registry.k8s.io/kube-scheduler:{tag}"


def test_weights_and_port_reach_the_extender_and_kube_scheduler(render: Render) -> None:
    objects = render(*(part for pair in (
        "scheduler.port=9000", "scheduler.weights.tps=0.9", "scheduler.weights.util=0", "scheduler.weights.cost=0.5",
        "scheduler.weights.kvCache=1", "scheduler.weights.vramFree=20", "scheduler.weights.cache=0.25",
    ) for part in ("--set", pair)))  # fmt: skip
    [extender, _] = one(objects, "Deployment", "flexinfer-scheduler")["spec"]["template"]["spec"]["containers"]
    env = {entry["name"]: entry.get("value") for entry in extender["env"]}
    config = yaml.safe_load(one(objects, "ConfigMap", "flexinfer-scheduler")["data"]["scheduler.yaml"])

    assert [env[f"FLEXINFER_WEIGHT_{name}"] for name in ("TPS", "UTIL", "COST", "KV_CACHE", "VRAM_FREE", "CACHE")] == [
        "0.9", "0", "0.5", "1", "20", "0.25",
    ]  # fmt: skip
    assert "FLEXINFER_SHADOW_WEIGHTS" not in env
    assert one(objects, "Service", "flexinfer-scheduler")["spec"]["ports"][0]["port"] == 9000
    assert config["extenders"][0]["urlPrefix"] == "http://127.0.0.1:9000"


def test_weights_under_trial_are_read_by_the_extender(render: Render) -> None:
    objects = render("--set", "scheduler.shadowWeights.kvCache=0", "--set", "scheduler.shadowWeights.cache=0.5")
    [extender, _] = one(objects, "Deployment", "flexinfer-scheduler")["spec"]["template"]["spec"]["containers"]
    given = {entry["name"]: entry["value"] for entry in extender["env"] if entry["name"] == "FLEXINFER_SHADOW_WEIGHTS"}

    found = shadow_of(parse(SchedulerSettings, "flexinfer-sched", (), given))

    assert found == Weights(kv_cache=0.0, cache=0.5)


@pytest.mark.parametrize("value", ["speed=1", "tps=-1", "tps=fast"])
def test_weights_under_trial_that_make_no_sense_are_refused(refuse: Refuse, value: str) -> None:
    said = refuse("--set", f"scheduler.shadowWeights.{value}")

    assert re.search(r"shadowWeights|propertyName .speed.", said)


def test_an_existing_scheduler_gets_its_configuration_instead(render: Render) -> None:
    objects = render("--set", "scheduler.kubeScheduler.enabled=false")
    config = yaml.safe_load(one(objects, "ConfigMap", "flexinfer-scheduler")["data"]["extenders.yaml"])

    assert config["extenders"][0]["urlPrefix"] == "http://flexinfer-scheduler.flexinfer-system.svc:8000"
    assert len(one(objects, "Deployment", "flexinfer-scheduler")["spec"]["template"]["spec"]["containers"]) == 1


def test_a_chart_that_changes_nothing_of_a_pod_restarts_none(render: Render) -> None:
    def templates(objects: list[Object]) -> dict[str, Any]:
        return {name: pod for name, pod in pods(objects) if not name.endswith("-test")}

    before, after = templates(render()), templates(render("--set", "scheduler.weights.tps=0.9"))

    assert {name for name in before if before[name] != after[name]} == {"flexinfer-scheduler"}
    again = templates(render("--set", "podDisruptionBudgets.enabled=false"))
    assert again == before


def test_three_servers_by_one_value(render: Render) -> None:
    objects = render("--set", "nats.replicas=3")
    config = one(objects, "ConfigMap", "flexinfer-nats")["data"]["nats.conf"]
    [manager] = one(objects, "Deployment", "flexinfer-controller")["spec"]["template"]["spec"]["containers"]

    assert one(objects, "StatefulSet", "flexinfer-nats")["spec"]["replicas"] == 3
    assert (
        len(re.findall(r"nats://flexinfer-nats-[012]\.flexinfer-nats-headless\.flexinfer-system\.svc:6222", config))
        == 3
    )
    assert {"name": "FLEXINFER_BUS_REPLICAS", "value": "3"} in manager["env"]


def test_no_password_is_in_a_configmap_or_a_pod(render: Render) -> None:
    objects = render(*EVERYTHING)
    secrets = [
        v for o in objects if o["kind"] == "Secret" for k, v in o.get("stringData", {}).items() if k == "password"
    ]
    others = yaml.safe_dump_all([obj for obj in objects if obj["kind"] != "Secret"])

    assert len(secrets) >= 7
    assert not [password for password in secrets if password in others]


def test_with_a_callout_agents_and_jobs_show_tokens_and_no_password_of_an_agent_is_left(render: Render) -> None:
    objects = render()
    config = one(objects, "ConfigMap", "flexinfer-nats")["data"]["nats.conf"]
    agent = one(objects, "DaemonSet", "flexinfer-agent")["spec"]["template"]["spec"]
    [bus] = [volume["projected"]["sources"] for volume in agent["volumes"] if volume["name"] == "nats"]
    [manager] = one(objects, "Deployment", "flexinfer-controller")["spec"]["template"]["spec"]["containers"]
    told = {entry["name"]: entry.get("value") for entry in manager["env"]}
    rules = [rule for role in objects if role["kind"] == "ClusterRole" for rule in role["rules"]]

    assert bus[0]["serviceAccountToken"] == {
        "audience": told["FLEXINFER_CALLOUT_AUDIENCE"], "expirationSeconds": 3600, "path": "credentials",
    }  # fmt: skip
    assert "auth_users: [dashboard, global-proxy, manager, proxy, scheduler, viewer]" in config
    assert "user: agent" not in config
    secrets = {obj["metadata"]["name"]: obj["stringData"] for obj in objects if obj["kind"] == "Secret"}
    assert "flexinfer-nats-agent" not in secrets
    assert len(base64.b64decode(secrets["flexinfer-nats-callout"]["seed"])) == 32
    assert (told["FLEXINFER_BENCH_AUDIENCE"], told["FLEXINFER_CALLOUT_AGENTS"]) == ("flexinfer-bus", "flexinfer-agent")
    assert told["FLEXINFER_BENCH_NATS_URL"] == "nats://flexinfer-nats.flexinfer-system.svc:4222"
    assert [rule["verbs"] for rule in rules if rule["resources"] == ["tokenreviews"]] == [["create"]]


def test_without_one_jobs_get_onto_a_bus_that_asks_for_nothing(render: Render) -> None:
    def address(*values: str) -> str:
        objects = render(*(part for value in values for part in ("--set", value)))
        [manager] = one(objects, "Deployment", "flexinfer-controller")["spec"]["template"]["spec"]["containers"]
        assert "FLEXINFER_BENCH_AUDIENCE" not in {entry["name"] for entry in manager["env"]}
        return next(entry["value"] for entry in manager["env"] if entry["name"] == "FLEXINFER_BENCH_NATS_URL")

    off = "nats.auth.callout.enabled=false"
    assert address(off) == "off"
    assert address("nats.auth.enabled=false").startswith("nats://")
    assert address("benchmark.natsUrl=tls://bus:4222", off) == "tls://bus:4222"


def test_a_certificate_of_ones_own_for_the_webhook(render: Render) -> None:
    objects = render("--set", "webhook.enabled=true,webhook.existingSecret=mine,webhook.caBundle=Q0E=")
    [webhook] = one(objects, "ValidatingWebhookConfiguration", "flexinfer-webhook")["webhooks"]

    assert webhook["clientConfig"]["caBundle"] == "Q0E="
    assert webhook["failurePolicy"] == "Ignore"
    assert not [obj for obj in objects if obj["kind"] == "Secret" and "webhook" in obj["metadata"]["name"]]


def test_crds_and_results_stay_by_policy(render: Render) -> None:
    keep = {"helm.sh/resource-policy": "keep"}
    objects = render()
    crds = [obj for obj in objects if obj["kind"] == "CustomResourceDefinition"]

    assert {crd["metadata"]["name"] for crd in crds} == {"models.ai.flexinfer", "modeldeployments.ai.flexinfer"}
    assert all(crd["metadata"]["annotations"].items() >= keep.items() for crd in crds)
    assert one(objects, "ConfigMap", "flexinfer-benchmark-results")["metadata"]["annotations"] == keep
    gone = render("--set", "crds.keep=false", "--set", "benchmark.keepResults=false")
    assert "helm.sh/resource-policy" not in yaml.safe_dump_all(gone)


def test_agents_may_look_further_by_value(render: Render) -> None:
    def agent(access: str) -> tuple[Object, set[str]]:
        pod = dict(pods(render("--set", f"agent.hostAccess={access}")))["flexinfer-agent"]
        return pod["containers"][0]["securityContext"], {
            v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v
        }

    files, chroot, privileged = agent("files"), agent("chroot"), agent("privileged")

    assert files[1] == {"/run/flexinfer", "/run/systemd"}
    assert chroot[0]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_CHROOT"]}
    assert chroot[1] == privileged[1] == {"/run/flexinfer", "/"}
    assert privileged[0]["privileged"] is True


def test_one_value_makes_a_nodes_cache_filled_shared_and_kept(render: Render) -> None:
    objects = dict(pods(render("--set", "fetch.nodeCache=/srv/models", "--set", "fetch.floorGb=50")))
    [manager], [agent] = objects["flexinfer-controller"]["containers"], objects["flexinfer-agent"]["containers"]
    told = {entry["name"]: entry.get("value") for entry in (*manager["env"], *agent["env"])}
    [mount] = [mount for mount in agent["volumeMounts"] if mount["name"] == "node-cache"]
    [volume] = [volume for volume in objects["flexinfer-agent"]["volumes"] if volume["name"] == "node-cache"]

    assert (told["FLEXINFER_FETCH_IMAGE"], told["FLEXINFER_NODE_CACHE"]) == (manager["image"], "/srv/models")
    assert volume["hostPath"] == {"path": "/srv/models", "type": "DirectoryOrCreate"}
    assert told["FLEXINFER_MODEL_CACHE"] == mount["mountPath"]
    assert (told["FLEXINFER_MODEL_CACHE_LIMIT_GB"], told["FLEXINFER_MODEL_CACHE_FLOOR_GB"]) == ("0", "50")
    # Root, because a kubelet makes the directory; nothing else that root may do.
    assert objects["flexinfer-agent"]["securityContext"]["runAsUser"] == 0
    assert agent["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_weights_are_fetched_without_a_shared_cache_or_not_at_all(render: Render) -> None:
    def told(*values: str) -> dict[str, str]:
        objects = dict(pods(render(*values)))
        [manager], agent = objects["flexinfer-controller"]["containers"], objects["flexinfer-agent"]
        assert agent["securityContext"]["runAsNonRoot"] is True
        assert "node-cache" not in {volume["name"] for volume in agent["volumes"]}
        return {entry["name"]: entry.get("value") for entry in manager["env"]}

    alone = told("--set", "fetch.enabled=true", "--set", "fetch.image=mirror.example.com/fetch:1")
    assert alone["FLEXINFER_FETCH_IMAGE"] == "mirror.example.com/fetch:1"
    assert "FLEXINFER_NODE_CACHE" not in alone
    assert "FLEXINFER_FETCH_IMAGE" not in told()


# --- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("agent.nodes=some", "at '/agent/nodes': value must be one of 'all', 'gpu'"),
        ("agent.nodez=all", "at '/agent': additional properties 'nodez' not allowed"),
        ("scheduler.port=http", "at '/scheduler/port': got string, want integer"),
        ("scheduler.port=70000", "at '/scheduler/port'"),
        ("scheduler.weights.tps=-1", "at '/scheduler/weights/tps'"),
        ("scheduler.weights.tps=much", "at '/scheduler/weights/tps'"),
        ("scheduler.weights.speed=1", "additional properties 'speed' not allowed"),
        ("nats.replicas=2", "at '/nats/replicas': value must be one of 1, 3, 5"),
        ("nats.persistence.size=2GB", "at '/nats/persistence/size'"),
        ("agent.interval=30", "at '/agent/interval'"),
        ("webhook.failurePolicy=Maybe", "value must be one of 'Ignore', 'Fail'"),
        ("proxy.extraEnv[0].value=a", "at '/proxy/extraEnv/0': missing property 'name'"),
        ("proxy.resources.limits.memory=lots", "at '/proxy/resources/limits/memory'"),
        ("globalProxy.clusters.east=proxy", "at '/globalProxy/clusters/east'"),
        ("fetch.nodeCache=models", "at '/fetch/nodeCache'"),
        ("fetch.floorGb=-1", "at '/fetch/floorGb'"),
        ("externalNats.url=http://bus", "at '/externalNats/url'"),
        ("externalNats.url=nats://bus:4222", "Set nats.enabled=false to use the existing one, or clear"),
        ("externalNats.caSecret=ca", "Clear them, or set nats.enabled=false and externalNats.url"),
        ("nats.enabled=false", "set nats.enabled=true, or externalNats.url"),
        ("nats.tls.create=false", "nats.tls.enabled needs a certificate: set nats.tls.create=true, or"),
        ("nats.tls.existingSecret=mine", "Set nats.tls.create=false to use the Secret"),
        ("scheduler.tls.enabled=true", "scheduler.tls.enabled needs a certificate: set scheduler.tls.existingSecret"),
        ("webhook.enabled=true,webhook.existingSecret=mine", "set webhook.caBundle, or clear the value"),
        ("metrics.rules.enabled=true", "Install it first, or set them to false"),
        ("globalProxy.enabled=true,globalProxy.bus=false", "globalProxy.enabled needs clusters: set"),
        ("globalProxy.bus=false,globalProxy.weights.west=1", 'name "west", which is not in globalProxy.clusters'),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_its_path_or_the_remedy(refuse: Refuse, value: str, words: str) -> None:
    assert words in " ".join(refuse("--set", value).split())


def test_a_cluster_that_is_too_old_is_refused(refuse: Refuse) -> None:
    assert "FlexInfer needs Kubernetes 1.29 or newer" in refuse(version="1.28.9")


def test_the_oldest_supported_cluster_is_not(render: Render) -> None:
    assert render(version="1.29.0")
