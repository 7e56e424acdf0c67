BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE configs (
	id VARCHAR(36) NOT NULL, 
	kernel_hash VARCHAR(64) NOT NULL, 
	kernel_name VARCHAR(200) NOT NULL, 
	device_key VARCHAR(200) NOT NULL, 
	device_name VARCHAR(200) NOT NULL, 
	dtype VARCHAR(16) NOT NULL, 
	shape_key VARCHAR(400) NOT NULL, 
	toolchain_key VARCHAR(1000) NOT NULL, 
	job_id VARCHAR(36), 
	checked BOOLEAN NOT NULL, 
	low_ns FLOAT NOT NULL, 
	high_ns FLOAT NOT NULL, 
	body TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_configs PRIMARY KEY (id), 
	CONSTRAINT uq_configs_key UNIQUE (kernel_hash, device_key, dtype, shape_key, toolchain_key)
);
INSERT INTO "configs" VALUES('4cfd92f7-bddb-57f1-b65d-ec5fa2fc800e','607babf133399c2b31415c4693f370f51a4a6a490b92c6404447d79b5b79c44b','scale','cpu/epyc/cores2','AMD EPYC','f32','n=4099','{"deuteron":"0.1.0","llvmlite":"0.50.0","target":"cpu"}','e676f854-e6a8-4cb3-a336-9eefe89dd700',1,8.71508333333333393925e+03,8.76308333333333393938e+03,'{"checked":true,"config":{"BLOCK":512,"num_warps":4},"created_at":"2026-11-21T23:17:36.362+00:00","default_config":{"BLOCK":512,"num_warps":4},"default_time_ns":{"high":8763.083333333334,"low":8715.083333333334,"median":8749.729166666668,"samples":40},"device":{"compute_capability":null,"kind":"cpu","memory_bytes":25276510208,"mig":null,"name":"AMD EPYC","pci_device_id":null,"power_cap_watts":null,"sm_count":2},"dims_from_arguments":{"n":"n"},"dtype":"f32","dtype_argument":"x_ptr","id":"4cfd92f7-bddb-57f1-b65d-ec5fa2fc800e","kernel_hash":"607babf133399c2b31415c4693f370f51a4a6a490b92c6404447d79b5b79c44b","kernel_name":"scale","profile_sha256":"ba57d24ce3ae98ec399f2433238b9efb6bdaac9b5090495a6c839f78504e1663","shape":{"n":4099},"shape_key":"n=4099","speedup":{"high":1.0,"low":1.0,"median":1.0,"samples":40},"time_ns":{"high":8763.083333333334,"low":8715.083333333334,"median":8749.729166666668,"samples":40},"toolchain":{"deuteron":"0.1.0","llvmlite":"0.50.0","target":"cpu"},"trials":3,"verdict":"SAME"}','2026-11-21 23:17:36.362000');
CREATE TABLE counters (
	name VARCHAR(40) NOT NULL, 
	value BIGINT NOT NULL, 
	CONSTRAINT pk_counters PRIMARY KEY (name)
);
INSERT INTO "counters" VALUES('configs',1);
INSERT INTO "counters" VALUES('configs/6c9bcdca098011b5f2b82dbc3c2bea89',1);
CREATE TABLE devices (
	"key" VARCHAR(200) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	fingerprint TEXT NOT NULL, 
	worker VARCHAR(200) NOT NULL, 
	first_seen DATETIME NOT NULL, 
	last_seen DATETIME NOT NULL, 
	CONSTRAINT pk_devices PRIMARY KEY ("key")
);
INSERT INTO "devices" VALUES('cpu/epyc/cores2','cpu','AMD EPYC','{"kind": "cpu", "name": "AMD EPYC", "pci_device_id": null, "sm_count": 2, "memory_bytes": 25276510208, "compute_capability": null, "mig": null, "power_cap_watts": null}','','2026-11-21 23:18:14.931620','2026-11-21 23:18:14.931620');
CREATE TABLE events (
	job_id VARCHAR(36) NOT NULL, 
	id INTEGER NOT NULL, 
	kind VARCHAR(40) NOT NULL, 
	body TEXT NOT NULL, 
	claim_id VARCHAR(80), 
	sequence INTEGER, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_events PRIMARY KEY (job_id, id), 
	CONSTRAINT fk_events_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE, 
	CONSTRAINT uq_events_delivery UNIQUE (job_id, claim_id, sequence)
);
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',1,'job_state','{"kind":"job_state","state":"running","attempt":1,"cancel_requested":false,"reason":null}',NULL,NULL,'2026-11-21 23:18:14.908852');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',2,'job_started','{"kind":"job_started","kernel_name":"scale","device":"cpu/epyc/cores2","strategy":"random","tasks":1,"trials":3,"seconds":null,"at":"2026-11-21T23:17:35.298+00:00"}','ticket.run',1,'2026-11-21 23:18:14.917951');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',3,'shape_started','{"kind":"shape_started","shape":{"n":4099},"dtype":"f32","space_size":3,"flops":4099.0,"bytes":32792.0,"at":"2026-11-21T23:17:35.355+00:00"}','ticket.run',2,'2026-11-21 23:18:14.918557');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',4,'trial_finished','{"kind":"trial_finished","shape":{"n":4099},"dtype":"f32","trial":{"id":"59fa89d4-b0a7-40e8-b21f-89df15bb0149","number":0,"config":{"BLOCK":512,"num_warps":4},"status":"ok","phase":"screen","time_ns":{"median":8889.565217391304,"low":8841.0,"high":8935.521739130434,"samples":30},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3688819328.964101,"check_s":0.0001459779999777311,"compile_s":0.21481058300003042,"flop_s":461102416.1205126,"frontend_ms":0.577722,"llvm_ms":23.334055,"measure_s":0.007743966000020919,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":18.516341,"tile_ms":0.293849,"total_ms":42.721967,"worst_error":0.0},"started_at":"2026-11-21T23:17:35.639+00:00","duration_s":0.32754977899992355},"incumbent":"59fa89d4-b0a7-40e8-b21f-89df15bb0149","at":"2026-11-21T23:17:35.967+00:00"}','ticket.run',3,'2026-11-21 23:18:14.919072');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',5,'trial_finished','{"kind":"trial_finished","shape":{"n":4099},"dtype":"f32","trial":{"id":"a50e3b62-5aae-4273-a2c9-69cbca0b0951","number":1,"config":{"BLOCK":256,"num_warps":4},"status":"ok","phase":"screen","time_ns":{"median":8938.590909090908,"low":8773.09090909091,"high":9172.318181818182,"samples":30},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3668587178.170243,"check_s":0.0028074800000013056,"compile_s":0.0188140550000071,"flop_s":458573397.27128035,"frontend_ms":0.425955,"llvm_ms":1.462032,"measure_s":0.007109599000045819,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":15.618866,"tile_ms":0.274169,"total_ms":17.781022,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.268+00:00","duration_s":0.010387401000002683},"incumbent":"59fa89d4-b0a7-40e8-b21f-89df15bb0149","at":"2026-11-21T23:17:36.278+00:00"}','ticket.run',4,'2026-11-21 23:18:14.920898');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',6,'trial_finished','{"kind":"trial_finished","shape":{"n":4099},"dtype":"f32","trial":{"id":"7dc26c65-9ad0-454e-bc0e-0f79d5387e96","number":2,"config":{"BLOCK":1024,"num_warps":4},"status":"ok","phase":"screen","time_ns":{"median":8902.195652173912,"low":8878.91304347826,"high":9440.173913043478,"samples":30},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3683585632.2695184,"check_s":0.0019026690000600865,"compile_s":0.21799638799996046,"flop_s":460448204.0336898,"frontend_ms":0.498614,"llvm_ms":19.564325,"measure_s":0.0072269149999328874,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":17.216211,"tile_ms":0.295981,"total_ms":37.575131,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.279+00:00","duration_s":0.00941060299999208},"incumbent":"59fa89d4-b0a7-40e8-b21f-89df15bb0149","at":"2026-11-21T23:17:36.288+00:00"}','ticket.run',5,'2026-11-21 23:18:14.921866');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',7,'trial_finished','{"kind":"trial_finished","shape":{"n":4099},"dtype":"f32","trial":{"id":"f6caee29-8306-4e60-b18e-f36ef5afb61d","number":3,"config":{"BLOCK":512,"num_warps":4},"status":"ok","phase":"race","time_ns":{"median":8878.478260869566,"low":8807.91304347826,"high":9179.347826086956,"samples":7},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3693425724.149751,"check_s":1.8296666818666079e-06,"flop_s":461678215.5187189,"frontend_ms":0.577722,"group_index":0.0,"group_size":3.0,"llvm_ms":23.334055,"measure_s":0.02390558999998878,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":18.516341,"ratio":1.0,"ratio_high":1.0,"ratio_low":1.0,"ratio_pairs":7.0,"tile_ms":0.293849,"total_ms":42.721967,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.289+00:00","duration_s":0.024081357333329834},"incumbent":"f6caee29-8306-4e60-b18e-f36ef5afb61d","at":"2026-11-21T23:17:36.361+00:00"}','ticket.run',6,'2026-11-21 23:18:14.922664');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',8,'trial_finished','{"kind":"trial_finished","shape":{"n":4099},"dtype":"f32","trial":{"id":"261642bc-f116-4a37-a153-d19e0a0329d3","number":4,"config":{"BLOCK":1024,"num_warps":4},"status":"ok","phase":"race","time_ns":{"median":9020.869565217392,"low":8771.347826086956,"high":9217.260869565218,"samples":7},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3635126277.23154,"check_s":1.8296666818666079e-06,"flop_s":454390784.6539425,"frontend_ms":0.498614,"group_index":1.0,"group_size":3.0,"llvm_ms":19.564325,"measure_s":0.02390558999998878,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":17.216211,"ratio":1.0074704316806888,"ratio_high":1.0320324023814973,"ratio_low":0.9929867523636351,"ratio_pairs":7.0,"tile_ms":0.295981,"total_ms":37.575131,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.289+00:00","duration_s":0.024081357333329834},"incumbent":"f6caee29-8306-4e60-b18e-f36ef5afb61d","at":"2026-11-21T23:17:36.362+00:00"}','ticket.run',7,'2026-11-21 23:18:14.923503');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',9,'trial_finished','{"kind":"trial_finished","shape":{"n":4099},"dtype":"f32","trial":{"id":"cf025e20-672e-4ac7-824e-ab9f23e455ff","number":5,"config":{"BLOCK":256,"num_warps":4},"status":"ok","phase":"race","time_ns":{"median":8867.130434782608,"low":8742.608695652174,"high":9294.739130434782,"samples":7},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3698152434.0014906,"check_s":1.8296666818666079e-06,"flop_s":462269054.2501863,"frontend_ms":0.425955,"group_index":2.0,"group_size":3.0,"llvm_ms":1.462032,"measure_s":0.02390558999998878,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":15.618866,"ratio":0.9997920186952689,"ratio_high":1.0228473160452094,"ratio_low":0.9883280738789163,"ratio_pairs":7.0,"tile_ms":0.274169,"total_ms":17.781022,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.289+00:00","duration_s":0.024081357333329834},"incumbent":"cf025e20-672e-4ac7-824e-ab9f23e455ff","at":"2026-11-21T23:17:36.362+00:00"}','ticket.run',8,'2026-11-21 23:18:14.924365');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',10,'trial_finished','{"kind":"trial_finished","shape":{"n":4099},"dtype":"f32","trial":{"id":"353f5d42-47cc-4b1e-bb5b-cbde844d1ac5","number":6,"config":{"BLOCK":512,"num_warps":4},"status":"ok","phase":"final","time_ns":{"median":8749.729166666668,"low":8715.083333333334,"high":8763.083333333334,"samples":40},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3747773145.3592606,"check_s":0.0011180383333263915,"flop_s":468471643.16990757,"frontend_ms":0.577722,"group_index":0.0,"group_size":3.0,"llvm_ms":23.334055,"measure_s":0.13190230933332714,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":18.516341,"ratio":1.0,"ratio_high":1.0,"ratio_low":1.0,"ratio_pairs":40.0,"tile_ms":0.293849,"total_ms":42.721967,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.362+00:00","duration_s":0.23381573233333106},"incumbent":"353f5d42-47cc-4b1e-bb5b-cbde844d1ac5","at":"2026-11-21T23:17:37.065+00:00"}','ticket.run',9,'2026-11-21 23:18:14.925109');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',11,'trial_finished','{"kind":"trial_finished","shape":{"n":4099},"dtype":"f32","trial":{"id":"9d2e5fd1-22d8-4952-80e2-06531b614ea9","number":7,"config":{"BLOCK":256,"num_warps":4},"status":"ok","phase":"final","time_ns":{"median":8703.8125,"low":8653.333333333334,"high":8745.125,"samples":40},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3767544395.0567636,"check_s":0.0011180383333263915,"flop_s":470943049.38209546,"frontend_ms":0.425955,"group_index":1.0,"group_size":3.0,"llvm_ms":1.462032,"measure_s":0.13190230933332714,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":15.618866,"ratio":0.9944033465390858,"ratio_high":0.9968117881533702,"ratio_low":0.9919211131003538,"ratio_pairs":40.0,"tile_ms":0.274169,"total_ms":17.781022,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.362+00:00","duration_s":0.23381573233333106},"incumbent":"9d2e5fd1-22d8-4952-80e2-06531b614ea9","at":"2026-11-21T23:17:37.065+00:00"}','ticket.run',10,'2026-11-21 23:18:14.925885');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',12,'trial_finished','{"kind":"trial_finished","shape":{"n":4099},"dtype":"f32","trial":{"id":"8a034f31-fe2d-4891-80b8-e12bb73c3dd3","number":8,"config":{"BLOCK":1024,"num_warps":4},"status":"ok","phase":"final","time_ns":{"median":8724.5,"low":8692.125,"high":8745.541666666666,"samples":40},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3758610808.642329,"check_s":0.0011180383333263915,"flop_s":469826351.08029115,"frontend_ms":0.498614,"group_index":2.0,"group_size":3.0,"llvm_ms":19.564325,"measure_s":0.13190230933332714,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":17.216211,"ratio":0.9988598785825086,"ratio_high":1.0006513281636795,"ratio_low":0.996274554774478,"ratio_pairs":40.0,"tile_ms":0.295981,"total_ms":37.575131,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.362+00:00","duration_s":0.23381573233333106},"incumbent":"9d2e5fd1-22d8-4952-80e2-06531b614ea9","at":"2026-11-21T23:17:37.066+00:00"}','ticket.run',11,'2026-11-21 23:18:14.926630');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',13,'shape_finished','{"kind":"shape_finished","record":{"id":"4cfd92f7-bddb-57f1-b65d-ec5fa2fc800e","kernel_name":"scale","kernel_hash":"607babf133399c2b31415c4693f370f51a4a6a490b92c6404447d79b5b79c44b","device":{"kind":"cpu","name":"AMD EPYC","pci_device_id":null,"sm_count":2,"memory_bytes":25276510208,"compute_capability":null,"mig":null,"power_cap_watts":null},"shape":{"n":4099},"shape_key":"n=4099","dtype":"f32","toolchain":{"deuteron":"0.1.0","llvmlite":"0.50.0","target":"cpu"},"config":{"BLOCK":512,"num_warps":4},"default_config":{"BLOCK":512,"num_warps":4},"time_ns":{"median":8749.729166666668,"low":8715.083333333334,"high":8763.083333333334,"samples":40},"default_time_ns":{"median":8749.729166666668,"low":8715.083333333334,"high":8763.083333333334,"samples":40},"speedup":{"median":1.0,"low":1.0,"high":1.0,"samples":40},"verdict":"SAME","trials":3,"checked":true,"dims_from_arguments":{"n":"n"},"dtype_argument":"x_ptr","created_at":"2026-11-21T23:17:36.362+00:00","profile_sha256":"ba57d24ce3ae98ec399f2433238b9efb6bdaac9b5090495a6c839f78504e1663"},"at":"2026-11-21T23:17:37.083+00:00"}','ticket.run',12,'2026-11-21 23:18:14.927403');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',14,'job_finished','{"kind":"job_finished","records":["4cfd92f7-bddb-57f1-b65d-ec5fa2fc800e"],"duration_s":1.819550908999986,"profile":"search.hatchet","profile_sha256":"ba57d24ce3ae98ec399f2433238b9efb6bdaac9b5090495a6c839f78504e1663","at":"2026-11-21T23:17:37.084+00:00"}','ticket.run',13,'2026-11-21 23:18:14.932568');
INSERT INTO "events" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700',15,'job_state','{"kind":"job_state","state":"succeeded","attempt":1,"cancel_requested":false,"reason":null}',NULL,NULL,'2026-11-21 23:18:14.933648');
CREATE TABLE idempotency_keys (
	owner VARCHAR(36) NOT NULL, 
	"key" VARCHAR(200) NOT NULL, 
	body_sha256 VARCHAR(64) NOT NULL, 
	job_id VARCHAR(36) NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_idempotency_keys PRIMARY KEY (owner, "key"), 
	CONSTRAINT fk_idempotency_keys_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "idempotency_keys" VALUES('single-user','stored','b1661e425efbaaf5cab9df14ca4e65a821e77174540b3e82b1cfa2414cfcd3cc','e676f854-e6a8-4cb3-a336-9eefe89dd700','2026-11-21 23:18:14.889338');
CREATE TABLE jobs (
	number INTEGER NOT NULL, 
	id VARCHAR(36) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	kernel_name VARCHAR(200) NOT NULL, 
	kernel_hash VARCHAR(64) NOT NULL, 
	device VARCHAR(100) NOT NULL, 
	spec TEXT NOT NULL, 
	trials_total INTEGER NOT NULL, 
	trials_done INTEGER NOT NULL, 
	screened INTEGER NOT NULL, 
	last_event INTEGER NOT NULL, 
	attempts INTEGER NOT NULL, 
	claim_id VARCHAR(80), 
	worker VARCHAR(200), 
	cancel_requested BOOLEAN NOT NULL, 
	error TEXT, 
	profile_sha256 VARCHAR(64), 
	created_at DATETIME NOT NULL, 
	started_at DATETIME, 
	finished_at DATETIME, 
	lease_expires_at DATETIME, 
	CONSTRAINT pk_jobs PRIMARY KEY (number), 
	CONSTRAINT uq_jobs_id UNIQUE (id)
);
INSERT INTO "jobs" VALUES(1,'e676f854-e6a8-4cb3-a336-9eefe89dd700','succeeded','scale','607babf133399c2b31415c4693f370f51a4a6a490b92c6404447d79b5b79c44b','cpu','{"workload": {"name": "scale", "kernel": {"name": "scale", "source": "import deuteron\nimport deuteron.language as tl\n\n\n@deuteron.jit\ndef scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):\n    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    inside = at < n\n    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=inside) * factor, mask=inside)\n", "filename": "scale.py"}, "dims": ["n"], "dtypes": ["f32"], "tensors": [{"name": "x_ptr", "shape": ["n"], "dtype": "$dtype", "role": "input", "init": "normal"}, {"name": "y_ptr", "shape": ["n"], "dtype": "$dtype", "role": "output", "init": "normal"}], "scalars": {"n": "n", "factor": "2.5"}, "constexprs": {}, "grid": ["cdiv(n, BLOCK)"], "flops": "n", "bytes": "2 * n * element_bytes", "spaces": {"any": {"parameters": [{"name": "BLOCK", "choices": [256, 512, 1024], "default": 512}, {"name": "num_warps", "choices": [4], "default": 4, "when": "BLOCK > 256"}], "constraints": ["BLOCK <= 1024"]}}, "defaults": {}, "tolerance": {"atol": 1e-06, "rtol": 1.0}, "reference": "interpreter", "shapes": [], "dims_from_arguments": {"n": "n"}}, "shapes": [{"n": 4099}], "dtypes": ["f32"], "device": "cpu", "budget": {"trials": 3, "seconds": null}, "strategy": "random", "seed": 7}',3,9,3,15,1,'ticket.run','cpu@here/1',0,NULL,NULL,'2026-11-21 23:18:14.886843','2026-11-21 23:18:14.906623','2026-11-21 23:18:14.932818',NULL);
CREATE TABLE kernels (
	hash VARCHAR(64) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	filename VARCHAR(400) NOT NULL, 
	text TEXT NOT NULL, 
	arguments TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_kernels PRIMARY KEY (hash)
);
INSERT INTO "kernels" VALUES('607babf133399c2b31415c4693f370f51a4a6a490b92c6404447d79b5b79c44b','scale','scale.py','import deuteron
import deuteron.language as tl


@deuteron.jit
def scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=inside) * factor, mask=inside)
','[{"name": "x_ptr", "constexpr": false, "default": null}, {"name": "y_ptr", "constexpr": false, "default": null}, {"name": "n", "constexpr": false, "default": null}, {"name": "factor", "constexpr": false, "default": null}, {"name": "BLOCK", "constexpr": true, "default": null}]','2026-11-21 23:18:14.885559');
CREATE TABLE tokens (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME, 
	revoked_at DATETIME, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_hash UNIQUE (hash)
);
CREATE TABLE trials (
	job_id VARCHAR(36) NOT NULL, 
	trial_id VARCHAR(64) NOT NULL, 
	phase VARCHAR(16) NOT NULL, 
	sequence INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	dtype VARCHAR(16) NOT NULL, 
	shape TEXT NOT NULL, 
	status VARCHAR(20) NOT NULL, 
	median_ns FLOAT, 
	body TEXT NOT NULL, 
	recorded_at DATETIME NOT NULL, 
	CONSTRAINT pk_trials PRIMARY KEY (job_id, trial_id), 
	CONSTRAINT fk_trials_job_id_jobs FOREIGN KEY(job_id) REFERENCES jobs (id) ON DELETE CASCADE
);
INSERT INTO "trials" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700','59fa89d4-b0a7-40e8-b21f-89df15bb0149','screen',1,1,'f32','{"n":4099}','ok',8.8895652173913040318e+03,'{"id":"59fa89d4-b0a7-40e8-b21f-89df15bb0149","number":0,"config":{"BLOCK":512,"num_warps":4},"status":"ok","phase":"screen","time_ns":{"median":8889.565217391304,"low":8841.0,"high":8935.521739130434,"samples":30},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3688819328.964101,"check_s":0.0001459779999777311,"compile_s":0.21481058300003042,"flop_s":461102416.1205126,"frontend_ms":0.577722,"llvm_ms":23.334055,"measure_s":0.007743966000020919,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":18.516341,"tile_ms":0.293849,"total_ms":42.721967,"worst_error":0.0},"started_at":"2026-11-21T23:17:35.639+00:00","duration_s":0.32754977899992355}','2026-11-21 23:18:14.919935');
INSERT INTO "trials" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700','a50e3b62-5aae-4273-a2c9-69cbca0b0951','screen',2,1,'f32','{"n":4099}','ok',8.9385909090909080989e+03,'{"id":"a50e3b62-5aae-4273-a2c9-69cbca0b0951","number":1,"config":{"BLOCK":256,"num_warps":4},"status":"ok","phase":"screen","time_ns":{"median":8938.590909090908,"low":8773.09090909091,"high":9172.318181818182,"samples":30},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3668587178.170243,"check_s":0.0028074800000013056,"compile_s":0.0188140550000071,"flop_s":458573397.27128035,"frontend_ms":0.425955,"llvm_ms":1.462032,"measure_s":0.007109599000045819,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":15.618866,"tile_ms":0.274169,"total_ms":17.781022,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.268+00:00","duration_s":0.010387401000002683}','2026-11-21 23:18:14.921373');
INSERT INTO "trials" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700','7dc26c65-9ad0-454e-bc0e-0f79d5387e96','screen',3,1,'f32','{"n":4099}','ok',8.90219565217391209464e+03,'{"id":"7dc26c65-9ad0-454e-bc0e-0f79d5387e96","number":2,"config":{"BLOCK":1024,"num_warps":4},"status":"ok","phase":"screen","time_ns":{"median":8902.195652173912,"low":8878.91304347826,"high":9440.173913043478,"samples":30},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3683585632.2695184,"check_s":0.0019026690000600865,"compile_s":0.21799638799996046,"flop_s":460448204.0336898,"frontend_ms":0.498614,"llvm_ms":19.564325,"measure_s":0.0072269149999328874,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":17.216211,"tile_ms":0.295981,"total_ms":37.575131,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.279+00:00","duration_s":0.00941060299999208}','2026-11-21 23:18:14.922235');
INSERT INTO "trials" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700','f6caee29-8306-4e60-b18e-f36ef5afb61d','race',4,1,'f32','{"n":4099}','ok',8.87847826086956592919e+03,'{"id":"f6caee29-8306-4e60-b18e-f36ef5afb61d","number":3,"config":{"BLOCK":512,"num_warps":4},"status":"ok","phase":"race","time_ns":{"median":8878.478260869566,"low":8807.91304347826,"high":9179.347826086956,"samples":7},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3693425724.149751,"check_s":1.8296666818666079e-06,"flop_s":461678215.5187189,"frontend_ms":0.577722,"group_index":0.0,"group_size":3.0,"llvm_ms":23.334055,"measure_s":0.02390558999998878,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":18.516341,"ratio":1.0,"ratio_high":1.0,"ratio_low":1.0,"ratio_pairs":7.0,"tile_ms":0.293849,"total_ms":42.721967,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.289+00:00","duration_s":0.024081357333329834}','2026-11-21 23:18:14.923070');
INSERT INTO "trials" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700','261642bc-f116-4a37-a153-d19e0a0329d3','race',5,1,'f32','{"n":4099}','ok',9.02086956521739193742e+03,'{"id":"261642bc-f116-4a37-a153-d19e0a0329d3","number":4,"config":{"BLOCK":1024,"num_warps":4},"status":"ok","phase":"race","time_ns":{"median":9020.869565217392,"low":8771.347826086956,"high":9217.260869565218,"samples":7},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3635126277.23154,"check_s":1.8296666818666079e-06,"flop_s":454390784.6539425,"frontend_ms":0.498614,"group_index":1.0,"group_size":3.0,"llvm_ms":19.564325,"measure_s":0.02390558999998878,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":17.216211,"ratio":1.0074704316806888,"ratio_high":1.0320324023814973,"ratio_low":0.9929867523636351,"ratio_pairs":7.0,"tile_ms":0.295981,"total_ms":37.575131,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.289+00:00","duration_s":0.024081357333329834}','2026-11-21 23:18:14.923851');
INSERT INTO "trials" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700','cf025e20-672e-4ac7-824e-ab9f23e455ff','race',6,1,'f32','{"n":4099}','ok',8.86713043478260806284e+03,'{"id":"cf025e20-672e-4ac7-824e-ab9f23e455ff","number":5,"config":{"BLOCK":256,"num_warps":4},"status":"ok","phase":"race","time_ns":{"median":8867.130434782608,"low":8742.608695652174,"high":9294.739130434782,"samples":7},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3698152434.0014906,"check_s":1.8296666818666079e-06,"flop_s":462269054.2501863,"frontend_ms":0.425955,"group_index":2.0,"group_size":3.0,"llvm_ms":1.462032,"measure_s":0.02390558999998878,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":15.618866,"ratio":0.9997920186952689,"ratio_high":1.0228473160452094,"ratio_low":0.9883280738789163,"ratio_pairs":7.0,"tile_ms":0.274169,"total_ms":17.781022,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.289+00:00","duration_s":0.024081357333329834}','2026-11-21 23:18:14.924714');
INSERT INTO "trials" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700','353f5d42-47cc-4b1e-bb5b-cbde844d1ac5','final',7,1,'f32','{"n":4099}','ok',8.74972916666666787957e+03,'{"id":"353f5d42-47cc-4b1e-bb5b-cbde844d1ac5","number":6,"config":{"BLOCK":512,"num_warps":4},"status":"ok","phase":"final","time_ns":{"median":8749.729166666668,"low":8715.083333333334,"high":8763.083333333334,"samples":40},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3747773145.3592606,"check_s":0.0011180383333263915,"flop_s":468471643.16990757,"frontend_ms":0.577722,"group_index":0.0,"group_size":3.0,"llvm_ms":23.334055,"measure_s":0.13190230933332714,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":18.516341,"ratio":1.0,"ratio_high":1.0,"ratio_low":1.0,"ratio_pairs":40.0,"tile_ms":0.293849,"total_ms":42.721967,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.362+00:00","duration_s":0.23381573233333106}','2026-11-21 23:18:14.925479');
INSERT INTO "trials" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700','9d2e5fd1-22d8-4952-80e2-06531b614ea9','final',8,1,'f32','{"n":4099}','ok',8703.8125,'{"id":"9d2e5fd1-22d8-4952-80e2-06531b614ea9","number":7,"config":{"BLOCK":256,"num_warps":4},"status":"ok","phase":"final","time_ns":{"median":8703.8125,"low":8653.333333333334,"high":8745.125,"samples":40},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3767544395.0567636,"check_s":0.0011180383333263915,"flop_s":470943049.38209546,"frontend_ms":0.425955,"group_index":1.0,"group_size":3.0,"llvm_ms":1.462032,"measure_s":0.13190230933332714,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":15.618866,"ratio":0.9944033465390858,"ratio_high":0.9968117881533702,"ratio_low":0.9919211131003538,"ratio_pairs":40.0,"tile_ms":0.274169,"total_ms":17.781022,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.362+00:00","duration_s":0.23381573233333106}','2026-11-21 23:18:14.926229');
INSERT INTO "trials" VALUES('e676f854-e6a8-4cb3-a336-9eefe89dd700','8a034f31-fe2d-4891-80b8-e12bb73c3dd3','final',9,1,'f32','{"n":4099}','ok',8724.5,'{"id":"8a034f31-fe2d-4891-80b8-e12bb73c3dd3","number":8,"config":{"BLOCK":1024,"num_warps":4},"status":"ok","phase":"final","time_ns":{"median":8724.5,"low":8692.125,"high":8745.541666666666,"samples":40},"error":null,"reference":"the default configuration, itself checked with the interpreter at n=99","metrics":{"byte_s":3758610808.642329,"check_s":0.0011180383333263915,"flop_s":469826351.08029115,"frontend_ms":0.498614,"group_index":2.0,"group_size":3.0,"llvm_ms":19.564325,"measure_s":0.13190230933332714,"num_ctas":1.0,"num_stages":3.0,"num_warps":4.0,"object_ms":17.216211,"ratio":0.9988598785825086,"ratio_high":1.0006513281636795,"ratio_low":0.996274554774478,"ratio_pairs":40.0,"tile_ms":0.295981,"total_ms":37.575131,"worst_error":0.0},"started_at":"2026-11-21T23:17:36.362+00:00","duration_s":0.23381573233333106}','2026-11-21 23:18:14.926959');
CREATE INDEX ix_configs_device_key ON configs (device_key);
CREATE INDEX ix_configs_kernel_name ON configs (kernel_name);
CREATE INDEX ix_jobs_kernel_hash ON jobs (kernel_hash);
CREATE INDEX ix_jobs_state ON jobs (state);
CREATE INDEX ix_kernels_name ON kernels (name);
CREATE INDEX ix_idempotency_keys_created_at ON idempotency_keys (created_at);
CREATE INDEX ix_trials_job_id_sequence ON trials (job_id, sequence);
COMMIT;
