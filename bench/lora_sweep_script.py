"""One run of the sweep as a standalone script: TRL and PEFT as in their guides.

``bench/lora_sweep.py`` starts it once per run; it reads ``{model, texts, out, ...}`` as JSON on
standard input and prints its training loss.
"""

import json
import sys

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer


def main() -> None:
    """Trains one adapter and saves it."""
    job = json.load(sys.stdin)
    set_seed(job["seed"])  # the trainer sets it after the adapter is drawn
    config = SFTConfig(
        output_dir=job["out"],
        learning_rate=job["learning_rate"],
        max_steps=job["max_steps"],
        per_device_train_batch_size=job["batch"],
        warmup_steps=0,
        logging_steps=1,
        max_length=256,
        seed=job["seed"],
        loss_type="chunked_nll",
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = SFTTrainer(
        AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32),
        config,
        train_dataset=Dataset.from_list([{"text": t} for t in job["texts"]]),
        processing_class=AutoTokenizer.from_pretrained(job["model"]),
        peft_config=LoraConfig(
            task_type="CAUSAL_LM",
            r=job["lora_r"],
            lora_alpha=job["lora_alpha"],
            lora_dropout=0.0,
            target_modules=["q_proj", "v_proj"],
        ),
    )
    loss = trainer.train().training_loss
    trainer.save_model(job["out"])
    print(json.dumps({"train_loss": loss}))


if __name__ == "__main__":
    main()
